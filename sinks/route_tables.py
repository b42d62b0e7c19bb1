"""The lake's tables of flows over the fabric: paths, loads of links, how evenly flows spread."""

from sinks.layout import F64, I32, I64, LOSSES, MEMBERS, SCOPE, STEPS, TEXT, U64, WINDOW, Field, Table

_WINDOW_END = Field("window_end_ns", I64, "end of the window")
FLOWS = Table(
    "flows",
    "Flows and the paths they took, by window.",
    (
        Field("flow_id", U64, "hash of addresses, ports and protocol"),
        Field("src", TEXT, "source address"),
        Field("dst", TEXT, "destination address"),
        Field("src_port", I32, "source port"),
        Field("dst_port", I32, "destination port"),
        Field("protocol", I32, "IP protocol"),
        Field("job", TEXT, "job that owns the flow"),
        Field("rank_src", I32, "sending rank"),
        Field("rank_dst", I32, "receiving rank"),
        Field("bytes", I64, "bytes seen in the window"),
        Field("path", STEPS, "links in order, with the share of the flow on each"),
        Field("path_source", TEXT, "observed, observed_probe, walked, computed, candidates"),
        Field("agreement", F64, "agreement of the model that chose the path"),
        Field("valid_from_ns", I64, "first sight of this path"),
        Field("valid_to_ns", I64, "last sight of this path"),
        SCOPE,
        WINDOW,
        _WINDOW_END,
        Field("reports", I64, "reports that the path rests on"),
        Field("latency_ns", I64, "median of the summed hop latencies, where units are known"),
    ),
)
LINKS = Table(
    "links",
    "Load of links by window.",
    (
        Field("layer", TEXT, "layer of the fabric"),
        Field("link", TEXT, "link, from its sending port"),
        WINDOW,
        Field("flows", I64, "flows on the link"),
        Field(
            "bytes", I64, "counted in the intervals that ended in the window; without counters: attributed"
        ),
        Field("capacity_bps", F64, "capacity"),
        Field("utilisation", F64, "bytes over capacity in the interval"),
        Field("coverage", F64, "attributed over counted bytes"),
        SCOPE,
        _WINDOW_END,
        Field("attributed", I64, "bytes that flows account for in the window"),
        Field("interval_ns", I64, "time that counted bytes are of; null if bytes are not counted"),
    ),
)
IMBALANCE = Table(
    "imbalance",
    "How evenly flows spread over links, by window: rows without a switch are of a layer, others of an ECMP group.",
    (
        SCOPE,
        WINDOW,
        _WINDOW_END,
        Field("layer", TEXT, "layer of the fabric"),
        Field("switch", TEXT, "switch that chooses; null: the whole layer"),
        Field("measure", TEXT, "what is spread: flows, bytes"),
        Field("groups", I64, "ECMP groups that carry flows"),
        Field("links", I64, "links of the layer, or of the group"),
        Field("flows", F64, "flows that had a choice there"),
        Field("bytes", F64, "their bytes"),
        Field("fim_routing", F64, "FIM in percent against what each group expects, by the flows of groups"),
        Field("fim_layer", F64, "FIM in percent of the layer's links against one even load"),
        Field("fim_null", F64, "mean of fim_routing by chance; null where flows are split over links"),
        Field("null_sd", F64, "its standard deviation"),
        Field("null_method", TEXT, "how chance was computed: exact, drawn, normal"),
        Field("null_draws", I64, "redraws, where it was drawn"),
        Field("z", F64, "standard deviations above the mean by chance"),
        Field("p", F64, "two-sided mid-p; of groups adjusted by Holm over those of the layer"),
        Field("verdict", TEXT, "by p at 5 %: like_random, worse_than_random, better_than_random"),
        Field("max_over_mean", F64, "greatest load over the mean, relative to what is expected"),
        Field("jain", F64, "Jain's index"),
        Field("cov", F64, "coefficient of variation"),
        Field("idle", I64, "links without load"),
        Field("coverage", F64, "attributed over counted bytes, of links counted in the window"),
        Field("capacity_known", F64, "share of the links whose capacity is known, not assumed"),
        Field(
            "members",
            MEMBERS,
            "links of a group, on its row by flows: the share each is meant to take, its load",
        ),
    ),
)
HOTSPOTS = Table(
    "hotspots",
    "Links that stand out, by window: where elephants collide, that need longest, that are idle against chance.",
    (
        SCOPE,
        WINDOW,
        _WINDOW_END,
        Field("kind", TEXT, "collision, hot, idle"),
        Field("link", TEXT, "the link"),
        Field("layer", TEXT, "its layer"),
        Field("bytes", F64, "bytes of flows on it"),
        Field("elephants", I64, "collision: large flows that share it"),
        Field("overload", F64, "collision: rate that they want over its capacity"),
        Field("seconds", F64, "hot: bytes over capacity"),
        Field("over_mean", F64, "hot: that over the mean of the layer's links"),
        Field("expected", F64, "idle: keys expected on it"),
        Field("p", F64, "idle: chance of none, by Holm over the layer's links"),
        Field(
            "losses", LOSSES, "collision: its flows, and one less the fair rate over what their ends allow"
        ),
    ),
)
JOB_LOSSES = Table(
    "job_losses",
    "What jobs lose to collisions of flows, by window.",
    (
        SCOPE,
        WINDOW,
        _WINDOW_END,
        Field("job", TEXT, "the job; null: flows that nobody is known to own"),
        Field("flows", I64, "its flows"),
        Field("bytes", F64, "their bytes"),
        Field("mean_loss", F64, "mean loss of its flows, by bytes"),
        Field("max_loss", F64, "greatest loss of a flow"),
        Field("links_shared_with_others", I64, "links with a collision where it meets another job"),
    ),
)
POLARISATION = Table(
    "polarisation",
    "Whether what one switch chooses decides what the next one chooses, by window and pair of layers.",
    (
        SCOPE,
        WINDOW,
        _WINDOW_END,
        Field("layer_from", TEXT, "layer of the choice before"),
        Field("layer_to", TEXT, "layer of the choice"),
        Field("tests", I64, "pairs of switches, and groups, tested"),
        Field("polarised", I64, "tests that say polarised, by Holm at 1 %"),
        Field("unknown", I64, "tests with too few keys"),
        Field("z", F64, "all tests together: standard deviations above chance"),
        Field("p", F64, "one-sided p of that"),
    ),
)
ALL = (FLOWS, LINKS, IMBALANCE, HOTSPOTS, JOB_LOSSES, POLARISATION)
