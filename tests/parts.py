"""Merged windows made by hand, or in bulk from a seed, for tests of what reads them."""

from dataclasses import dataclass, field

import numpy as np

from schemas import columns as c
from schemas import merged
from schemas.batch import narrow
from schemas.flat import Array
from schemas.merged import Merged
from schemas.pack import Strings

HOUR_NS = 3_600_000_000_000
START_NS = 1_700_000_000_000_000_000 // HOUR_NS * HOUR_NS  # begin of an hour
APPEND_MS = 1_700_000_000_000


def table(prefix: str, strings: Strings, rows: list[dict[str, object]]) -> dict[str, Array]:
    """A table of the record from one mapping an entry; what is left out is null."""
    out: dict[str, Array] = {}
    for column in merged.TABLES[prefix]:
        dtype = np.dtype(column.dtype)
        values = [row.pop(column.name, None) for row in rows]
        values = [strings.index(v) if isinstance(v, str) else v for v in values]
        if dtype.kind == "f":
            wide: Array = np.array([np.nan if v is None else v for v in values], np.float64)
        elif dtype == np.uint64:
            wide = np.array([2**64 - 1 if v is None else v for v in values], np.uint64)
        else:
            wide = np.array([c.NULL_I64 if v is None else v for v in values], np.int64)
        out[column.name] = narrow(wide, dtype)[0]
    assert not any(rows), f"unknown columns {rows}"
    return out


def head(**fields: str | int) -> dict[str, str | int]:
    """A header with sensible values."""
    values: dict[str, str | int] = {
        "tenant": "default",
        "scope": "job",
        "window_start_ns": START_NS,
        "window_end_ns": START_NS + 100_000_000,
        "part": 0,
        "parts": 1,
        "first_row": 0,
        "count": 0,
        "rows": 0,
        "late": 0,
        "released_past": 0,
        "edges_unrepaired": 0,
        "mode": "observe",
        "policy_version": 0,
        "partition": 0,
        "first_offset": 0,
        "last_offset": 0,
    }
    assert fields.keys() <= values.keys()
    return values | fields


@dataclass
class Maker:
    """Windows of `count` rows over `sources` GPU sources, the same for the same seed.

    Every tenth row has a value, one in five a cause and an edge; each row has the gpu columns.
    """

    sources: int = 8
    count: int = 100
    scope: str = "job"
    clocks: int = 4
    seed: int = 1
    families: tuple[str, ...] = ("gpu",)
    _seq: Array = field(init=False)

    def __post_init__(self) -> None:
        self._rng = np.random.default_rng(self.seed)
        self._seq = np.zeros(self.sources, np.int64)
        self.window = 0

    def part(self, offset: int = 0, start_ns: int | None = None) -> Merged:
        """The next window, in one part."""
        rng, n = self._rng, self.count
        start = START_NS + self.window * 100_000_000 if start_ns is None else start_ns
        strings = Strings()
        entry = rng.integers(0, self.sources, n).astype("<u2")
        order = np.argsort(entry, kind="stable")
        held = np.bincount(entry, minlength=self.sources)
        nth = np.empty(n, np.int64)
        nth[order] = np.arange(n) - np.repeat(np.cumsum(held) - held, held)
        at = np.sort(rng.integers(0, 100_000_000, n))
        data = table(
            "src",
            strings,
            [
                {
                    "src_name": f"rank{s}/stream", "src_incarnation": 7 + s, "src_rank": s,
                    "src_family": self.families[s % len(self.families)], "src_host": f"host{s // 8}",
                    "src_flags": c.SOURCE_ORDERED, "src_clock": s % self.clocks,
                    "src_base_seq": int(self._seq[s]), "src_base_ns": start,
                }
                for s in range(self.sources)
            ],
        )  # fmt: skip
        data |= table(
            "clk",
            strings,
            [
                {
                    "clk_id": f"host{k}/CLOCK_REALTIME", "clk_epoch": 0, "clk_parent": "TAI",
                    "clk_kind": c.ClockKind.PTP_HW, "clk_status": c.Status.LOCKED,
                    "clk_timescale": c.Timescale.TAI, "clk_flags": 0, "clk_ref_ns": START_NS + 40,
                    "clk_ref_parent_ns": START_NS, "clk_rate_ppb": 0.0, "clk_bound_ns": 1000,
                    "clk_as_of_ns": START_NS, "clk_quantum_ns": 1, "clk_assurance": c.Assurance.HARD,
                    "clk_provenance": "test",
                }
                for k in range(self.clocks)
            ],
        )  # fmt: skip
        data |= table(
            "map",
            strings,
            [
                {
                    "map_ref_ns": START_NS + 40, "map_ref_tai_ns": START_NS, "map_rate_ppb": 0.0,
                    "map_bound_ns": 1000, "map_growth_ppb": 0.0,
                }
                for _ in range(self.clocks)
            ],
        )  # fmt: skip
        record: dict[str, object] = {
            "in_partition": 0,
            "in_offset": offset,
            "in_append_ms": 1_700_000_000_000,
        }
        data |= table("in", strings, [record])
        words = np.array([strings.index(f"kernel_{k}") for k in range(200)])
        data |= {
            "source": entry,
            "input": np.zeros(n, "<u2"),
            "seq_dt": nth.astype("<u4"),
            "raw_dt": (at + 40).astype("<u4"),
            "order_dt": at.astype("<u4"),
            "duration_ns": rng.integers(1, 50_000, n).astype("<u4"),
            "kind": np.full(n, c.GpuKind.KERNEL, "u1"),
            "entity": np.array([strings.index(f"gpu{s}") for s in range(self.sources)], "<u2")[entry],
            "name": words[rng.integers(0, 200, n)].astype("<u2"),
        }
        caused = np.flatnonzero(np.arange(n) % 5 == 4)
        cause = caused - 1
        seq = self._seq[entry] + nth
        data |= {
            "cause_row": caused.astype("<u4"),
            "cause_source": entry[cause],
            "cause_seq": seq[cause],
            "cause_point": np.zeros(len(caused), "u1"),
            "cause_verdict": np.full(len(caused), c.Verdict.INFERRED, "u1"),
        }
        m = len(caused)
        data |= {
            "edge_kind": np.full(m, c.EdgeKind.LAUNCH, "u1"),
            "edge_op": np.zeros(m, "u1"),
            "edge_group": np.full(m, c.NULL_U16, "<u2"),
            "edge_key": rng.integers(0, 2**63, m).astype("<u8"),
            "edge_cause_source": entry[cause],
            "edge_cause_seq": seq[cause],
            "edge_cause_point": np.zeros(m, "u1"),
            "edge_effect_source": entry[caused],
            "edge_effect_seq": seq[caused],
            "edge_effect_point": np.zeros(m, "u1"),
            "edge_gap_ns": at[caused] - at[cause],
            "edge_bound_ns": np.full(m, 2000),
            "edge_verdict": np.full(m, c.Verdict.INFERRED, "u1"),
            "edge_assumed": np.zeros(m, "u1"),
            "edge_effect_ns": start + at[caused],
            "edge_effect_duration_ns": np.zeros(m, np.int64),
            "edge_size": np.zeros(m, "<u4"),
            "edge_missing": np.zeros(m, "<u4"),
            "edge_cause_clock": (entry[cause] % self.clocks).astype("<u2"),
            "edge_effect_clock": (entry[caused] % self.clocks).astype("<u2"),
        }
        valued = np.arange(0, n, 10)
        data |= {
            "val_row": valued.astype("<u4"),
            "val_name": np.full(len(valued), strings.index("bytes"), "<u2"),
            "val": rng.integers(0, 2**30, len(valued)).astype("<f8"),
        }
        rows = np.flatnonzero(
            np.isin(entry % len(self.families), [k for k, name in enumerate(self.families) if name == "gpu"])
        )
        data |= {
            "gpu_row": rows.astype("<u4"),
            "gpu_correlation": rows.astype("<u4"),
            "gpu_device": np.zeros(len(rows), "<u2"),
            "gpu_stream": np.full(len(rows), 7, "<u4"),
        }
        data |= {
            "inversions_raw": np.array([0, 2, 0, 0, 1], "<i8"),
            "inversions_after": np.zeros(5, "<i8"),
            "verdicts": np.zeros(20, "<i8"),
        }
        header = head(
            scope=self.scope, window_start_ns=start, window_end_ns=start + 100_000_000,
            count=n, rows=n, first_offset=offset, last_offset=offset,
        )  # fmt: skip
        self._seq += held
        self.window += 1
        return Merged(header, strings.table, data)
