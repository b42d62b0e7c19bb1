"""The columns of the merged record: header, statistics, tables, rows, sections of the families."""

from schemas import columns as c
from schemas.batch import STRINGS
from schemas.columns import Column
from schemas.flat import Field, FlatSchema

HEADER = (
    Field("tenant", "string", "tenant"),
    Field("scope", "string", "job or shard"),
    Field("window_start_ns", "long", "start of the window, ns TAI"),
    Field("window_end_ns", "long", "end of the window, ns TAI"),
    Field("part", "long", "number of this part, from 0"),
    Field("parts", "long", "parts of the window"),
    Field("first_row", "long", "row number of this part's first row"),
    Field("count", "long", "rows in this part"),
    Field("rows", "long", "rows in the window"),
    Field("late", "long", "rows that came too late since the window before"),
    Field("released_past", "long", "sources that the window did not wait for"),
    Field("edges_unrepaired", "long", "edges whose effect had left when the cause became known"),
    Field("mode", "string", "effective mode of the scope's policy"),
    Field("policy_version", "long", "version of the policy applied; 0 for none"),
    Field("partition", "long", "partition of the input"),
    Field("first_offset", "long", "input record after the ones that the window before covers"),
    Field("last_offset", "long", "last input record taken before the release"),
)
STATISTICS = (
    Column("inversions_raw", "<i8", "1", "edges whose effect lies before the cause as mapped, by EdgeKind"),
    Column("inversions_after", "<i8", "1", "the same by order_ns, edges known at release, by EdgeKind"),
    Column("verdicts", "<i8", "1", "edges by EdgeKind times Verdict"),
)
SOURCES = (
    Column("src_name", "<u2", "string", "name of the source"),
    Column("src_incarnation", "<i8", "1", "start of the publisher, or hash of the file"),
    Column("src_family", "<u2", "string", "family of the source's rows"),
    Column("src_rank", "<i4", "1", "rank"),
    Column("src_host", "<u2", "string", "host"),
    Column("src_flags", "u1", "bits", "as in a batch; 8: placed by append time"),
    Column("src_clock", "<u2", "clock", "clock state applied to the source's rows"),
    Column("src_base_seq", "<i8", "1", "what seq_dt counts from"),
    Column("src_base_ns", "<i8", "ns", "what raw_dt counts from"),
)
PLACED_BY_APPEND = 8  # bit of src_flags
# The clock table lists the states applied, and below them parents that stamped no row: their maps are null.
MAPS = (
    Column("map_ref_ns", "<i8", "ns", "reference reading of the clock"),
    Column("map_ref_tai_ns", "<i8", "ns", "TAI at that moment by the map applied"),
    Column("map_rate_ppb", "<f8", "ppb", "TAI's rate over the clock's, less one"),
    Column("map_bound_ns", "<i8", "ns", "greatest error against TAI at map_ref_ns; null if none is known"),
    Column("map_growth_ppb", "<f8", "ppb", "growth of that error away from map_ref_ns"),
)
INPUTS = (
    Column("in_partition", "<i4", "1", "partition of an input record, by tt-origin"),
    Column("in_offset", "<i8", "1", "its offset"),
    Column("in_append_ms", "<i8", "ms", "its append time, Unix"),
)
ROWS = (
    Column("source", "<u2", "source", "entry of the source table"),
    Column("input", "<u2", "input", "entry of the input table"),
    Column("seq_dt", "<u4", "1", "sequence number from the source's base_seq"),
    Column("raw_dt", "<u4", "ns", "stamp as read, from the source's base_ns"),
    Column("order_dt", "<u4", "ns", "order_ns from the window's start"),
    Column("duration_ns", "<u4", "ns", "length; 0 one point; null end unknown"),
    Column("kind", "u1", "code", "the family's kind of row"),
    Column("entity", "<u2", "string", "component"),
    Column("name", "<u2", "string", "what happened"),
)
CAUSES = (
    Column("cause_row", "<u4", "row", "row (in this part) that has a binding cause"),
    Column("cause_source", "<u2", "source", "source of the cause"),
    Column("cause_seq", "<i8", "1", "sequence number of the cause"),
    Column("cause_point", "u1", "Point", "begin or end of the cause"),
    Column("cause_verdict", "u1", "Verdict", "verdict of that edge"),
)
ENDS = (
    Column("end_row", "<u4", "row", "row (in this part) whose end repair moved beyond begin + duration"),
    Column("end_shift_ns", "<i8", "ns", "by how much"),
)
EDGES = (
    Column("edge_kind", "u1", "EdgeKind", "kind of the edge"),
    Column("edge_op", "u1", "Op", "operation of a collective"),
    Column("edge_group", "<u2", "string", "process group of a collective"),
    Column("edge_key", "<u8", "1", "match key"),
    Column("edge_cause_source", "<u2", "source", "source of the cause"),
    Column("edge_cause_seq", "<i8", "1", "sequence number of the cause"),
    Column("edge_cause_point", "u1", "Point", "point of the cause"),
    Column("edge_effect_source", "<u2", "source", "source of the effect"),
    Column("edge_effect_seq", "<i8", "1", "sequence number of the effect"),
    Column("edge_effect_point", "u1", "Point", "point of the effect"),
    Column("edge_gap_ns", "<i8", "ns", "effect - cause by mapped time"),
    Column("edge_bound_ns", "<i8", "ns", "diff_bound of the two clocks; null if none is known"),
    Column("edge_verdict", "u1", "Verdict", "verdict"),
    Column("edge_assumed", "u1", "0/1", "whether the match rests on an assumption"),
    Column("edge_effect_ns", "<i8", "ns", "mapped time of the effect's point, TAI"),
    Column("edge_effect_duration_ns", "<i8", "ns", "the effect's own duration on its own clock"),
    Column("edge_size", "<u4", "1", "members of the collective that took part"),
    Column("edge_missing", "<u4", "1", "members expected that are missing"),
    Column("edge_cause_clock", "<u2", "clock", "clock state of the cause's stamp"),
    Column("edge_effect_clock", "<u2", "clock", "clock state of the effect's stamp"),
)
TABLES = {
    "src": SOURCES,
    "clk": c.CLOCKS,
    "map": MAPS,
    "in": INPUTS,
    "cause": CAUSES,
    "end": ENDS,
    "val": c.VALUES,
    "edge": EDGES,
    "esc": c.ESCAPES,
}
FAMILY_CODES = tuple(family for family in c.FAMILIES if family != "control")


def section(family: str) -> tuple[Column, ...]:
    """Columns of a family's section: `<family>_row`, then its own columns under `<family>_<name>`."""
    own = [column._replace(name=f"{family}_{column.name}") for column in c.FAMILIES[family]]
    return (Column(f"{family}_row", "<u4", "row", "row (in this part) that the entry belongs to"), *own)


SECTIONS = {family: section(family) for family in FAMILY_CODES}
SCHEMA = FlatSchema(
    "org.tempotrace.v1.Merged",
    "One part of a window in causal order.",
    HEADER,
    (
        STRINGS,
        *STATISTICS,
        *(column for table in TABLES.values() for column in table),
        *ROWS,
        *(column for columns in SECTIONS.values() for column in columns),
    ),
)
RUNS = (*TABLES.values(), (*c.CLOCKS, *MAPS))
