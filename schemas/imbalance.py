"""The second record of the `paths` topic: how evenly the flows of one window of a scope spread over links.

Rows without a switch are of a whole layer, the others of one ECMP group; there is one by flows and one by bytes
(none by bytes where no flow's bytes are known). Unknown numbers are NaN.
"""

from schemas.batch import STRINGS
from schemas.columns import Column
from schemas.flat import Array, FlatSchema
from schemas.window import HEADER, WindowRecord
from schemas.window import read as read_window
from schemas.window import write as write_window

SPREADS = (
    Column("imb_layer", "<u2", "string", "layer of the fabric"),
    Column("imb_switch", "<u2", "string", "switch that chooses; null: the whole layer"),
    Column("imb_measure", "u1", "Measure", "what is spread: flows or bytes"),
    Column("imb_groups", "<u4", "1", "ECMP groups that carry flows"),
    Column("imb_links", "<u4", "1", "links of the layer, or of the group"),
    Column("imb_flows", "<f8", "1", "flows that had a choice there"),
    Column("imb_bytes", "<f8", "B", "their bytes"),
    Column("imb_fim_routing", "<f8", "%", "FIM against what each group expects, by the flows of groups"),
    Column("imb_fim_layer", "<f8", "%", "FIM of the layer's links against one even load"),
    Column("imb_fim_null", "<f8", "%", "mean of fim_routing by chance"),
    Column("imb_null_sd", "<f8", "%", "its standard deviation"),
    Column(
        "imb_null_method", "u1", "NullMethod", "how chance was computed; null: flows are split over links"
    ),
    Column("imb_null_draws", "<u4", "1", "redraws, where it was drawn"),
    Column("imb_z", "<f8", "1", "standard deviations above the mean by chance"),
    Column("imb_p", "<f8", "1", "two-sided mid-p; of groups adjusted by Holm over those of the layer"),
    Column("imb_verdict", "u1", "Evenness", "by p at 5 %"),
    Column("imb_max_over_mean", "<f8", "1", "greatest load over the mean, relative to what is expected"),
    Column("imb_jain", "<f8", "1", "Jain's index"),
    Column("imb_cov", "<f8", "1", "coefficient of variation"),
    Column("imb_idle", "<u4", "1", "links without load"),
    Column("imb_coverage", "<f8", "1", "attributed over counted bytes, of links counted in the window"),
    Column("imb_capacity_known", "<f8", "1", "share of the links whose capacity is known, not assumed"),
    Column("imb_member_first", "<u4", "1", "first entry in mem_link"),
    Column("imb_member_count", "<u4", "1", "entries in mem_link; 0 but for groups, by flows"),
)
MEMBERS = (
    Column("mem_link", "<u2", "string", "link of the group"),
    Column("mem_weight", "<f8", "1", "share of the group that it is meant to take"),
    Column("mem_flows", "<f8", "1", "flows on it"),
    Column("mem_bytes", "<f8", "B", "their bytes"),
)
HOTSPOTS = (
    Column("hot_kind", "u1", "Hotspot", "collision, hot or idle"),
    Column("hot_link", "<u2", "string", "the link"),
    Column("hot_layer", "<u2", "string", "its layer"),
    Column("hot_bytes", "<f8", "B", "bytes of flows on it"),
    Column("hot_elephants", "<u4", "1", "collision: large flows that share it"),
    Column("hot_overload", "<f8", "1", "collision: rate that they want over its capacity"),
    Column("hot_seconds", "<f8", "s", "hot: bytes over capacity"),
    Column("hot_over_mean", "<f8", "1", "hot: that over the mean of the layer's links"),
    Column("hot_expected", "<f8", "1", "idle: keys expected on it"),
    Column("hot_p", "<f8", "1", "idle: chance of none, by Holm over the layer's links"),
    Column("hot_loss_first", "<u4", "1", "first entry in loss_flow"),
    Column("hot_loss_count", "<u4", "1", "entries in loss_flow: flows of a collision, worst first"),
)
LOSSES = (
    Column("loss_flow", "<u8", "1", "hash of the flow's addresses, ports and protocol"),
    Column("loss_share", "<f8", "1", "one less its max-min fair rate over what its ends would allow"),
)
JOBS = (
    Column("job_name", "<u2", "string", "the job; null: flows that nobody is known to own"),
    Column("job_flows", "<u4", "1", "its flows"),
    Column("job_bytes", "<f8", "B", "their bytes"),
    Column("job_loss_mean", "<f8", "1", "mean loss of its flows, by bytes"),
    Column("job_loss_max", "<f8", "1", "greatest loss of a flow"),
    Column("job_links_shared", "<u4", "1", "links with a collision where it meets another job"),
)
POLARISED = (
    Column("pol_from", "<u2", "string", "layer of the choice before"),
    Column("pol_to", "<u2", "string", "layer of the choice"),
    Column("pol_tests", "<u4", "1", "pairs of switches, and groups, tested"),
    Column("pol_polarised", "<u4", "1", "tests that say polarised, by Holm at 1 %"),
    Column("pol_unknown", "<u4", "1", "tests with too few keys"),
    Column("pol_z", "<f8", "1", "all tests together: standard deviations above chance"),
    Column("pol_p", "<f8", "1", "one-sided p of that"),
)
RUNS = (SPREADS, MEMBERS, HOTSPOTS, LOSSES, JOBS, POLARISED)
SCHEMA = FlatSchema(
    "org.tempotrace.v1.Imbalance",
    "How evenly the flows of one window spread over links, against chance.",
    HEADER,
    (STRINGS, *(column for run in RUNS for column in run)),
)
# Columns that say where a row's entries lie in another table: first, count, a column of that table.
LISTS = (
    ("imb_member_first", "imb_member_count", "mem_link"),
    ("hot_loss_first", "hot_loss_count", "loss_flow"),
)


class Imbalance(WindowRecord):
    """Imbalance of one window; `data` as in the columns above."""

    def __len__(self) -> int:
        """Number of layers and groups, by measure."""
        return len(self.data.get("imb_layer", ()))


def write(record: Imbalance) -> bytes:
    """One framed record."""
    return write_window(SCHEMA, record)


def read(header: dict[str, str | int], data: dict[str, Array]) -> Imbalance:
    """From a decoded flat record. Raises MalformedInput."""
    return Imbalance(*read_window(SCHEMA, RUNS, LISTS, header, data))
