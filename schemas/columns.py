"""The columns of everything that travels packed, and the code tables of their small integers.

A *column* is one little-endian numpy array in one Avro `bytes` field. The .avsc files are made from this
module (`python -m schemas.build`); a column's dtype and unit never change: a new meaning is a new column,
appended, with an empty default. The codes are those of `schemas.codes`, named here too so that readers of
columns need one module.

Null and escapes: in an unsigned column the type's greatest value is null, unless the escape table holds the
whole value for that row; in a signed column the least value is null; in a float column NaN is null.
A unit of `string` is an index into the record's string table, `source`/`clock`/`group` one into that table.
"""

from enum import IntEnum
from typing import NamedTuple

from schemas.codes import Assurance as Assurance
from schemas.codes import ClockKind as ClockKind
from schemas.codes import ClockKindOfRow as ClockKindOfRow
from schemas.codes import Control as Control
from schemas.codes import CounterState as CounterState
from schemas.codes import EdgeKind as EdgeKind
from schemas.codes import Evenness as Evenness
from schemas.codes import FabricKind as FabricKind
from schemas.codes import GpuKind as GpuKind
from schemas.codes import HopKind as HopKind
from schemas.codes import Hotspot as Hotspot
from schemas.codes import Measure as Measure
from schemas.codes import NullMethod as NullMethod
from schemas.codes import Op as Op
from schemas.codes import PathSource as PathSource
from schemas.codes import Point as Point
from schemas.codes import ProbeKind as ProbeKind
from schemas.codes import Role as Role
from schemas.codes import SportSource as SportSource
from schemas.codes import StampKind as StampKind
from schemas.codes import Status as Status
from schemas.codes import Timescale as Timescale
from schemas.codes import UnitSource as UnitSource
from schemas.codes import Verdict as Verdict
from schemas.int_bits import IntWarning as IntWarning
from schemas.int_bits import ReportFlag as ReportFlag

NULL_I64 = -(2**63)
NULL_I32 = -(2**31)
NULL_I16 = -(2**15)
NULL_U8 = 2**8 - 1
NULL_U16 = 2**16 - 1
NULL_U32 = 2**32 - 1


class Column(NamedTuple):
    """One packed column: its Avro field name, numpy dtype (little-endian), unit and meaning."""

    name: str
    dtype: str
    unit: str
    doc: str


SOURCE_ORDERED, SOURCE_LIVE, SOURCE_FINAL = 1, 2, 4  # bits of src_flags
UTC_OFFSET_KNOWN, UTC_OFFSET_VALID = 1, 2  # bits of clk_flags
ENDPOINT_ASSUMED = 1  # bit of ep_flags


# Header tables of a batch.

SOURCES = (
    Column("src_name", "<u2", "string", "name of the source, unique in its scope"),
    Column("src_rank", "<i4", "1", "rank of the job that the source belongs to"),
    Column("src_host", "<u2", "string", "host that the source runs on"),
    Column("src_flags", "u1", "bits", "1 totally ordered, 2 live input, 4 final: no row will follow"),
    Column("src_clock", "<u2", "clock", "clock that stamps the source's rows"),
    Column("src_incarnation", "<i8", "1", "start of the publisher, or hash of the file that was read"),
    Column("src_base_ns", "<i8", "ns", "what raw_dt counts from, on the source's clock"),
    Column("src_first_seq", "<i8", "1", "sequence number of the entry's first row"),
    Column("src_last_seq", "<i8", "1", "sequence number of the entry's last row; first - 1 if it has none"),
    Column("src_low_watermark_ns", "<i8", "ns", "no later row of this source begins below it (raw time)"),
)
CLOCKS = (
    Column("clk_id", "<u2", "string", "<host>/<name as the source gives it>"),
    Column("clk_epoch", "<i4", "1", "counts steps and resets; nothing cancels across epochs"),
    Column("clk_parent", "<u2", "string", "clock that this one was measured against"),
    Column("clk_kind", "u1", "ClockKind", "what disciplines the clock"),
    Column("clk_status", "u1", "Status", "whether the discipline holds"),
    Column("clk_timescale", "u1", "Timescale", "what the clock's readings count"),
    Column("clk_flags", "u1", "bits", "1 UTC offset known, 2 UTC offset valid"),
    Column("clk_utc_offset_s", "<i2", "s", "TAI - UTC as the clock's daemon states it"),
    Column("clk_ref_ns", "<i8", "ns", "reference reading on this clock"),
    Column("clk_ref_parent_ns", "<i8", "ns", "the parent's reading at the same moment"),
    Column("clk_rate_ppb", "<f8", "ppb", "parent's rate over this clock's, less one"),
    Column("clk_bound_ns", "<i8", "ns", "greatest error against the parent at as_of_ns"),
    Column("clk_as_of_ns", "<i8", "ns", "when bound_ns held, on this clock"),
    Column("clk_growth_ppb", "<f8", "ppb", "growth of the bound away from as_of_ns"),
    Column("clk_quantum_ns", "<i8", "ns", "step of a reading"),
    Column("clk_assurance", "u1", "Assurance", "what the bound rests on"),
    Column("clk_epsilon", "<f8", "1", "probability that a statistical bound is exceeded"),
    Column("clk_provenance", "<u2", "string", "who says so, from what, under which assumptions"),
)
GROUPS = (
    Column("grp_name", "<u2", "string", "name of the process group"),
    Column("grp_size", "<u4", "1", "number of members"),
    Column("grp_start", "<i4", "rank", "first rank of a regular group"),
    Column("grp_stride", "<i4", "rank", "distance of ranks in a regular group"),
    Column("grp_first", "<u4", "1", "first entry in grp_ranks of an irregular group"),
    Column("grp_count", "<u4", "1", "entries in grp_ranks; 0 for a regular group"),
)
GROUP_RANKS = Column("grp_ranks", "<i4", "rank", "rank lists of the irregular groups, one after the other")

# Columns of every family's rows.

COMMON = (
    Column("source", "<u2", "source", "entry of the source table; null for control rows"),
    Column("raw_dt", "<u4", "ns", "stamp as read, from the source entry's base_ns"),
    Column("duration_ns", "<u4", "ns", "length on the same clock; 0 one point; null begun, end unknown"),
    Column("kind", "u1", "code", "the family's kind of row"),
    Column("entity", "<u2", "string", "component that the row is about"),
    Column("name", "<u2", "string", "what happened"),
)
ENDPOINTS = (
    Column("ep_row", "<u4", "row", "row that the endpoint belongs to"),
    Column("ep_point", "u1", "Point", "0 begin, 1 end, 2 both"),
    Column("ep_kind", "u1", "EdgeKind", "kind of the edge"),
    Column("ep_role", "u1", "Role", "cause, effect, member or root"),
    Column("ep_key", "<u8", "1", "equal on both sides, unique in (scope, kind)"),
    Column("ep_group", "<u2", "group", "process group of a collective"),
    Column("ep_op", "u1", "Op", "operation of a collective"),
    Column("ep_size", "<u4", "1", "members expected; 0 unknown"),
    Column("ep_flags", "u1", "bits", "1 the match rests on an assumption"),
)
VALUES = (
    Column("val_row", "<u4", "row", "row that the number belongs to"),
    Column("val_name", "<u2", "string", "name of the number"),
    Column("val", "<f8", "by name", "the number"),
)
ESCAPES = (
    Column("esc_row", "<u4", "row", "row whose column could not hold the value"),
    Column("esc_column", "<u2", "string", "name of that column"),
    Column("esc_value", "<i8", "as the column", "the whole value; for raw_dt the raw_ns"),
)

# Own columns of each family.

FAMILIES: dict[str, tuple[Column, ...]] = {
    "gpu": (
        Column("correlation", "<u4", "1", "correlation id of launch and device work"),
        Column("device", "<u2", "1", "device ordinal on its host"),
        Column("stream", "<u4", "1", "stream or thread number"),
    ),
    "probe": (
        Column("peer", "<u2", "string", "the other node"),
        Column("probe", "<u4", "1", "number of the probe, by sender"),
        Column("stamp", "u1", "StampKind", "where the stamp was taken"),
        Column("bytes", "<u4", "B", "payload size"),
    ),
    "clock": (
        Column("parent", "<u2", "string", "clock measured against"),
        Column("offset_ns", "<i8", "ns", "clock - parent: positive is ahead"),
        Column("delay_ns", "<i8", "ns", "path delay or round trip"),
        Column("freq_ppb", "<f8", "ppb", "frequency correction applied"),
        Column("error_ns", "<i8", "ns", "greatest error the daemon states, or rms of a summary"),
        Column("spread_ns", "<i8", "ns", "max of a summary, or standard deviation"),
        Column("servo", "u1", "0-3", "unlocked, step, locked, locked-stable"),
        Column("text", "<u2", "string", "state, event or reference named by the line"),
    ),
    "int": (
        Column("node", "<u4", "1", "switch or node id of the hop"),
        Column("reporter", "<u4", "1", "node that sent the report"),
        Column("hw_id", "u1", "1", "report engine of the reporter"),
        Column("report_seq", "<u4", "1", "sequence number of the report's datagram"),
        Column("report", "<u4", "1", "report's place in the input, shared by its hops"),
        Column("hop", "u1", "1", "place on the path, 0 nearest the source"),
        Column("hops", "u1", "1", "hops in the report"),
        Column("in_port", "<u4", "1", "ingress port (level 1, physical)"),
        Column("out_port", "<u4", "1", "egress port (level 1, physical)"),
        Column("in_logical", "<u4", "1", "ingress port (level 2, logical)"),
        Column("out_logical", "<u4", "1", "egress port (level 2, logical)"),
        Column("latency", "<u4", "switch", "hop latency in the switch's own unit"),
        Column("queue", "u1", "1", "queue id"),
        Column("occupancy", "<u4", "switch", "queue occupancy in the switch's own unit"),
        Column("congestion", "<u4", "switch", "queue congestion status (INT 0.5)"),
        Column("buffer", "u1", "1", "buffer id"),
        Column("buffer_occupancy", "<u4", "switch", "buffer occupancy in the switch's own unit"),
        Column("ingress_ts", "<u8", "switch", "ingress stamp on the switch's clock, as read"),
        Column("egress_ts", "<u8", "switch", "egress stamp on the switch's clock, as read"),
        Column(
            "report_ts", "<u4", "switch", "ingress stamp in the report's own header (0.5 and 1.0), as read"
        ),
        Column("tx_util", "<u4", "switch", "egress utilisation as read"),
        Column("drop_reason", "u1", "switch", "why the packet was dropped"),
        Column("report_flags", "u1", "bits", "ReportFlag: what kind of report this is"),
        Column("version", "u1", "1/10", "report version: 5, 10 or 20"),
        Column(
            "int_version", "u1", "1/10", "INT version of the hop: 5, 10, 20; null: the report's own metadata"
        ),
        Column("warnings", "<u4", "bits", "IntWarning: deviations tolerated in this report"),
        Column("flow", "<u8", "1", "hash of the packet's addresses, ports and protocol (schemas.flow)"),
        Column("src", "<u2", "string", "source address of the packet"),
        Column("dst", "<u2", "string", "destination address of the packet"),
        Column("sport", "<u2", "1", "source port of the packet"),
        Column("dport", "<u2", "1", "destination port of the packet"),
        Column("protocol", "u1", "1", "IP protocol of the packet"),
        Column("length", "<u4", "B", "length of the packet by its IP header, as it was reported"),
    ),
    "fabric": (
        Column("tx_bytes", "<i8", "B", "sent in the interval; null where it cannot be told"),
        Column("rx_bytes", "<i8", "B", "received in the interval"),
        Column("tx_total", "<u8", "B", "the sent counter as read, in bytes"),
        Column("rx_total", "<u8", "B", "the received counter as read, in bytes"),
        Column("interval_ns", "<i8", "ns", "since the reading before; the row's stamp is the later one"),
        Column("capacity_bps", "<f8", "bit/s", "capacity of the port"),
        Column("state", "u1", "CounterState", "how the difference came about; the worse of both directions"),
        Column("drops", "<i8", "1", "packets dropped in the interval"),
        Column("errors", "<i8", "1", "packets with errors in the interval"),
        Column("pauses", "<i8", "1", "PFC frames or ticks of waiting in the interval"),
        Column("back", "<u2", "string", "half-link that received bytes came by"),
        Column("node", "<u4", "1", "the port's node as in-band telemetry numbers it"),
        Column("port", "<u4", "1", "the port as in-band telemetry numbers it"),
        Column("flow", "<u8", "1", "hash of the flow's addresses, ports and protocol (schemas.flow)"),
        Column("src", "<u2", "string", "source address of the flow"),
        Column("dst", "<u2", "string", "destination address of the flow"),
        Column("sport", "<u2", "1", "source port of the flow"),
        Column("dport", "<u2", "1", "destination port of the flow"),
        Column("protocol", "u1", "1", "IP protocol of the flow"),
        Column("qpn", "<u4", "1", "the receiver's queue pair, as in the packet"),
        Column("sport_source", "u1", "SportSource", "how the source port is known"),
        Column("job", "<u2", "string", "job that owns the flow"),
        Column("rank_src", "<i4", "rank", "sending rank"),
        Column("rank_dst", "<i4", "rank", "receiving rank"),
        Column("netdev", "<u2", "string", "network interface that the flow leaves its host by"),
        Column(
            "ports", "<u2", "string", "physical ports of the host, one of which carries it, joined by commas"
        ),
        Column("vlan", "<u2", "1", "VLAN that the flow is tagged with"),
        Column("vrf", "<u2", "string", "VRF that it is routed in"),
        Column("hop", "u1", "1", "place on the path, 0 nearest the source"),
        Column("hops", "u1", "1", "half-links of the path, over all its branches"),
        Column("share", "<f8", "1", "share of the flow on this half-link"),
        Column("path_source", "u1", "PathSource", "how the path is known"),
        Column("agreement", "<f8", "1", "agreement of the model that chose"),
    ),
    "control": (
        Column("number", "<i8", "by kind", "open: expected; policy: version; loss: events lost"),
        Column(
            "text",
            "<u2",
            "string",
            "open: ranks, hosts or sources; policy: the policy; loss: range and reason",
        ),
    ),
}
KINDS: dict[str, type[IntEnum]] = {
    "gpu": GpuKind,
    "probe": ProbeKind,
    "clock": ClockKindOfRow,
    "int": HopKind,
    "fabric": FabricKind,
    "control": Control,
}
# Tables whose columns all have the same length, by prefix.
TABLES: dict[str, tuple[Column, ...]] = {
    "src": SOURCES,
    "clk": CLOCKS,
    "grp": GROUPS,
    "ep": ENDPOINTS,
    "val": VALUES,
    "esc": ESCAPES,
}
