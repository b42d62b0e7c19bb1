"""The record of the `paths` topic: flows and links of one window of a scope, packed."""

from schemas.batch import STRINGS
from schemas.columns import Column
from schemas.flat import Array, FlatSchema
from schemas.window import HEADER, WindowRecord
from schemas.window import read as read_window
from schemas.window import write as write_window

FLOWS = (
    Column("flow_id", "<u8", "1", "hash of addresses, ports and protocol"),
    Column("flow_src", "<u2", "string", "source address"),
    Column("flow_dst", "<u2", "string", "destination address"),
    Column("flow_src_port", "<u2", "1", "source port"),
    Column("flow_dst_port", "<u2", "1", "destination port"),
    Column("flow_protocol", "u1", "1", "IP protocol"),
    Column("flow_job", "<u2", "string", "job that owns the flow"),
    Column("flow_rank_src", "<i4", "rank", "sending rank"),
    Column("flow_rank_dst", "<i4", "rank", "receiving rank"),
    Column("flow_bytes", "<i8", "B", "bytes seen of the flow in the window"),
    Column("flow_reports", "<u4", "1", "reports that the path rests on"),
    Column("flow_path_first", "<u4", "1", "first entry in path_link"),
    Column("flow_path_count", "<u4", "1", "entries in path_link"),
    Column("flow_path_source", "u1", "PathSource", "how the path is known"),
    Column("flow_agreement", "<f8", "1", "agreement of the model that chose the path"),
    Column("flow_valid_from_ns", "<i8", "ns", "first sight of this path, TAI"),
    Column("flow_valid_to_ns", "<i8", "ns", "last sight of this path, TAI"),
    Column("flow_latency_ns", "<i8", "ns", "median of the summed hop latencies, where units are known"),
)
PATH = (
    Column("path_link", "<u2", "string", "link, in order along the path"),
    Column("path_share", "<f8", "1", "share of the flow on this link"),
)
LINKS = (
    Column("link_layer", "<u2", "string", "layer of the fabric"),
    Column("link_name", "<u2", "string", "link, from its sending port"),
    Column("link_flows", "<u4", "1", "flows on the link"),
    Column(
        "link_bytes",
        "<i8",
        "B",
        "counted in the intervals that ended in the window; without counters: attributed",
    ),
    Column("link_capacity_bps", "<f8", "bit/s", "capacity"),
    Column("link_utilisation", "<f8", "1", "bytes over capacity in the interval"),
    Column("link_coverage", "<f8", "1", "attributed over counted bytes"),
    Column("link_attributed", "<i8", "B", "bytes that flows account for in the window"),
    Column("link_interval_ns", "<i8", "ns", "time that counted bytes are of; null if bytes are not counted"),
)
SWITCHES = (
    Column("node_id", "<u4", "1", "switch, as in-band telemetry numbers it"),
    Column("node_epoch", "<u4", "1", "restarts and wraps of its clock seen so far"),
    Column("node_unit_ns", "<f8", "ns", "a tick of its stamps"),
    Column("node_unit_source", "u1", "UnitSource", "how that is known"),
    Column("node_latency_unit_ns", "<f8", "ns", "a tick of its hop latency"),
    Column("node_latency_source", "u1", "UnitSource", "how that is known"),
    Column("node_zero_ns", "<i8", "ns", "TAI at which its clock read zero, where that is configured"),
    Column(
        "node_zero_max_ns",
        "<i8",
        "ns",
        "latest TAI of its zero: no report comes before its stamps; at the nominal tick",
    ),
    Column("node_hops", "<u4", "1", "hops with a latency"),
    Column("node_latency_ns", "<i8", "ns", "median of the plausible ones"),
    Column("node_left_out_ns", "<i8", "ns", "median of egress - ingress stamp - latency"),
    Column("node_implausible", "<u4", "1", "hop latencies beyond the round trip of their path"),
    Column("node_unchecked", "<u4", "1", "hop latencies of paths whose round trip is not known"),
)
OFFSETS = (
    Column("pair_from", "<u4", "1", "a switch"),
    Column("pair_to", "<u4", "1", "its neighbour, of the greater number"),
    Column("pair_status", "u1", "Status", "freerun: both directions seen; unknown: one; stepped: begun anew"),
    Column(
        "pair_offset_ns", "<i8", "ns", "clock of the neighbour - clock of the switch: middle of the range"
    ),
    Column("pair_bound_ns", "<i8", "ns", "half the range; null: one side is open"),
    Column("pair_min_ns", "<i8", "ns", "least offset; null: open"),
    Column("pair_max_ns", "<i8", "ns", "greatest offset; null: open"),
    Column("pair_rate_ppb", "<f8", "ppb", "rate of the neighbour's clock over the switch's, less one"),
    Column("pair_rate_bound_ppb", "<f8", "ppb", "greatest error of that"),
)
RUNS = (FLOWS, PATH, LINKS, SWITCHES, OFFSETS)
SCHEMA = FlatSchema(
    "org.tempotrace.v1.Paths",
    "Flows and links of one window.",
    HEADER,
    (STRINGS, *FLOWS, *PATH, *LINKS, *SWITCHES, *OFFSETS),
)
# Columns that say where a row's entries lie in another table: first, count, a column of that table.
LISTS = (("flow_path_first", "flow_path_count", "path_link"),)


class Paths(WindowRecord):
    """Flows and links of one window; `data` as in the columns above."""

    def __len__(self) -> int:
        """Number of flows."""
        return len(self.data.get("flow_id", ()))


def write(record: Paths) -> bytes:
    """One framed record."""
    return write_window(SCHEMA, record)


def read(header: dict[str, str | int], data: dict[str, Array]) -> Paths:
    """From a decoded flat record. Raises MalformedInput."""
    return Paths(*read_window(SCHEMA, RUNS, LISTS, header, data))
