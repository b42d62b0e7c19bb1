"""What a sender's reports may do differently, and how its packets show that they carry INT.

The specification leaves the signal of INT to the operator (a DSCP value, a UDP destination port, a 64-bit
marker after the TCP/UDP header) and vendors use some widths of their own: both are configuration, one Dialect
per sender.
"""

from dataclasses import dataclass

from schemas.errors import Usage

COLUMN_BITS = {"in_port": 16, "out_port": 16, "queue": 8, "occupancy": 24, "ingress_ts": 64, "egress_ts": 64}


@dataclass(frozen=True)
class Dialect:
    """How one kind of sender writes its reports. The defaults are the specification's.

    Without any signal (`dscp`, `udp_ports`, `marker`) a packet that its report calls a tracked flow is looked
    at: where a whole and consistent INT header follows TCP or UDP, it is INT.
    `low_bits` gives (column, bits) where a sender fills only the low bits of a field.
    """

    name: str = "spec"
    dscp: int | None = None  # value under dscp_mask that says INT
    dscp_mask: int = 0x3F
    udp_ports: tuple[int, ...] = ()  # UDP destination ports that say INT
    marker: int | None = None  # 64-bit number between the TCP/UDP header and INT
    tcp_options_first: bool = True  # INT after TCP's options, else before them
    vxlan_ports: tuple[int, ...] = (4789, 4790)
    geneve_port: int = 6081
    geneve_class: int = 0x0103
    gre_type: int | None = None  # GRE protocol type that says INT
    hw_id_bits: int = 6  # of the 28 bits before it and the sequence number end (report 2.0)
    flags_first: bool = False  # report 1.0: D, Q, F before the reserved bits
    low_bits: tuple[tuple[str, int], ...] = ()

    def __post_init__(self) -> None:
        if self.dscp is not None and not 0 <= self.dscp <= 63:
            raise Usage(f"DSCP {self.dscp} is not 0 to 63")
        if not 0 < self.dscp_mask <= 63:
            raise Usage(f"DSCP mask {self.dscp_mask} is not 1 to 63")
        for port in (*self.udp_ports, *self.vxlan_ports, self.geneve_port):
            if not 0 < port < 65536:
                raise Usage(f"UDP port {port} is not 1 to 65535")
        if self.marker is not None and not 0 <= self.marker < 2**64:
            raise Usage(f"probe marker {self.marker:#x} does not fit 64 bits")
        if not 1 <= self.hw_id_bits <= 8:
            raise Usage(f"a hw_id of {self.hw_id_bits} bits: 1 to 8 can be read")
        for column, bits in self.low_bits:
            if not 0 < bits <= COLUMN_BITS.get(column, 0):
                raise Usage(
                    f"{bits} bits for {column}: one of {', '.join(COLUMN_BITS)} and its width or less"
                )

    @property
    def signalled(self) -> bool:
        """Whether a signal of INT is configured."""
        return self.dscp is not None or bool(self.udp_ports) or self.marker is not None


SPEC = Dialect()
# Tofino counts 24 bits and numbers 16 engines; ports, queues and times fill only part of their fields.
TOFINO = Dialect(
    "tofino",
    hw_id_bits=4,
    low_bits=(("in_port", 9), ("out_port", 9), ("queue", 7), ("occupancy", 19),
              ("ingress_ts", 48), ("egress_ts", 48)),
)  # fmt: skip
DIALECTS = {dialect.name: dialect for dialect in (SPEC, TOFINO)}
