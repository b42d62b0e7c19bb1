"""Running the real merge and the naive one on a log, and what both say in one form."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from schemas import columns as c
from schemas.codec import decode_batch, decode_merged
from schemas.merged import Merged
from schemas.processor import Output, Record
from streams.causality.merge import Merge
from streams.causality.settings import MergeSettings
from tests.naive.log import Log
from tests.naive.merge import NaiveMerge, NaiveScope

Said = dict[str, Any]


def run(settings: MergeSettings, records: Sequence[Record]) -> tuple[list[Output], Any]:
    """All outputs of the merge, and its task."""
    task = Merge(settings).start(0, None)
    return [output for record in records for output in task.process(record)], task


def by_naive(settings: MergeSettings, log: Log) -> tuple[dict[str, Said], Counter[str]]:
    """What the naive merge says of each scope, and what it counted."""
    merge = NaiveMerge(settings)
    for message in log.messages:
        merge.take(message)
    out: dict[str, Said] = {}
    counts: Counter[str] = Counter()
    for name, scope in [*merge.ended, *merge.scopes.items()]:
        said, mine = _naive_scope(scope)
        counts += mine
        if any(said.values()):
            _add(out.setdefault(name, _nothing()), said)
    return out, +counts


def _nothing() -> Said:
    return {"windows": [], "progress": [], "late": []}


def _add(said: Said, more: Said) -> None:
    for name, value in more.items():
        said[name] += value
    said["late"].sort()


def _naive_scope(scope: NaiveScope) -> tuple[Said, Counter[str]]:
    counts: Counter[str] = Counter(
        duplicates=scope.duplicates, gaps=scope.gaps, late=len(scope.late_rows), **scope.past
    )
    windows = []
    for out in scope.out:
        counts["unrepaired"] += out.unrepaired
        counts["incomplete"] += out.incomplete
        counts["unknown"] += out.unknown
        for kind in range(len(c.EdgeKind)):
            counts[f"raw{kind}"] += out.raw[kind]
            counts[f"after{kind}"] += out.after[kind]
            for side in range(2):
                counts[f"unmatched{kind}{side}"] += out.unmatched[kind, side]
        if out.end_ns == out.start_ns:
            continue  # the end of a scope with no edge left to tell
        edges = sorted(tuple(vars(edge).values()) for edge in out.edges)
        windows.append(
            (
                out.start_ns,
                out.rows,
                [tuple(map(_plain, edge)) for edge in edges],
                out.released_past,
                out.late,
                out.policy,
            )
        )
    return {"windows": windows, "progress": scope.progress, "late": scope.late_rows}, counts


def _plain(value: Any) -> Any:
    return int(value) if isinstance(value, bool) else value


def by_merge(outputs: Sequence[Output], counters: Mapping[str, Any]) -> tuple[dict[str, Said], Counter[str]]:
    """What the outputs and counters of the real merge say, in the form of `by_naive`."""
    out: dict[str, Said] = {}
    parts: list[Merged] = []
    for output in outputs:
        assert output.key is not None
        said = out.setdefault(output.key.decode(), _nothing())
        if output.topic == "late":
            said["late"] = sorted(said["late"] + identities(output))
            continue
        record = decode_merged(output.value)
        if not isinstance(record, Merged):
            said["progress"].append((record.released_to_ns, record.closed))
            continue
        parts.append(record)
        if record.header["part"] == int(record.header["parts"]) - 1:
            said["windows"].append(window(parts))
            parts = []
    return out, +_counted(counters)


def _counted(counters: Mapping[str, Any]) -> Counter[str]:
    names = {
        "duplicates": "duplicates", "gaps": "gaps", "unrepaired": "edges_unrepaired",
        "incomplete": "collectives_incomplete", "unknown": "collectives_unknown",
    }  # fmt: skip
    counts = Counter({name: counters.get(metric, 0) for name, metric in names.items()})
    counts["late"] = sum(counters.get("late", {}).values())
    for (reason,), number in counters.get("released_past", {}).items():
        if reason != "join":
            counts[reason] += number
    for kind in c.EdgeKind:
        name = kind.name.lower()
        counts[f"raw{kind:d}"] = counters.get("inversions_raw", {}).get((name,), 0)
        counts[f"after{kind:d}"] = counters.get("inversions_after", {}).get((name,), 0)
        for side, role in enumerate(("cause", "effect")):
            counts[f"unmatched{kind:d}{side}"] = counters.get("unmatched", {}).get((name, role), 0)
    return counts


def identities(output: Output) -> list[tuple[str, int, int]]:
    """(source, incarnation, seq) of the rows of a batch."""
    batch = decode_batch(output.value)
    source = batch.column("source")
    names = [batch.strings[name] for name in batch.data["src_name"]]
    return [
        (names[s], int(batch.data["src_incarnation"][s]), seq)
        for s, seq in zip(source.tolist(), batch.seq().tolist(), strict=True)
    ]


def window(parts: Sequence[Merged]) -> tuple[Any, ...]:
    """Rows in order and sorted edges of a window's parts."""
    rows: list[Any] = []
    edges: list[Any] = []
    for part in parts:
        assert part.header["first_row"] == len(rows)
        rows += merged_rows(part)
        edges += merged_edges(part)
    assert parts[0].header["rows"] == len(rows)
    head = parts[0].header
    counts = (int(head[name]) for name in ("released_past", "late", "policy_version"))
    return parts[0].window_start_ns, rows, sorted(edges), *counts


def _source(part: Merged, entry: int) -> tuple[str, int]:
    return part.strings[int(part.data["src_name"][entry])], int(part.data["src_incarnation"][entry])


def merged_rows(part: Merged) -> list[Any]:
    """(identity, order, order end, (cause, point, verdict) or None) of each row."""
    data = part.data
    causes: dict[int, Any] = {}
    for k in range(part.table_len("cause")):
        name = (*_source(part, int(data["cause_source"][k])), int(data["cause_seq"][k]))
        causes[int(data["cause_row"][k])] = (name, int(data["cause_point"][k]), int(data["cause_verdict"][k]))
    order, end, seq = part.order_ns().tolist(), part.order_end_ns().tolist(), part.seq().tolist()
    return [
        ((*_source(part, int(data["source"][k])), seq[k]), order[k], end[k], causes.get(k))
        for k in range(len(part))
    ]


def merged_edges(part: Merged) -> list[Any]:
    """The edges as tuples in the order of tests.naive.window.Edge."""
    data, out = part.data, []
    for k in range(part.table_len("edge")):

        def at(name: str, k: int = k) -> int:
            return int(data[f"edge_{name}"][k])

        bound = at("bound_ns")
        out.append(
            (
                at("kind"), at("op"), part.text(at("group")), at("key"),
                (*_source(part, at("cause_source")), at("cause_seq")), at("cause_point"),
                (*_source(part, at("effect_source")), at("effect_seq")), at("effect_point"),
                at("gap_ns"), None if bound == c.NULL_I64 else bound, at("verdict"), at("assumed"),
                at("effect_ns"), at("effect_duration_ns"), at("size"), at("missing"),
            )
        )  # fmt: skip
    return out


def order_array(outputs: Sequence[Output]) -> np.ndarray[Any, Any]:
    """order_ns of all rows of all merged records, as they came."""
    found = [decode_merged(o.value) for o in outputs if o.topic == "merged"]
    return np.concatenate(
        [part.order_ns() for part in found if isinstance(part, Merged)] or [np.empty(0, np.int64)]
    )
