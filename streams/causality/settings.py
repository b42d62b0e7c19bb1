"""Settings of the merge, validated once."""

from dataclasses import dataclass

from schemas.errors import Usage
from streams.clock.relation import Declared

MS = 1_000_000
S = 1_000 * MS


@dataclass(frozen=True)
class MergeSettings:
    """The defaults are those of the contract of progress (docs/architecture.md, "Windows and release")."""

    tenant: str = "default"
    window_ns: int = 100 * MS
    join_grace_ms: int = 5_000  # append time that the first window waits for members that were announced
    idle_after_ms: int = 5_000  # append time after which a silent source no longer holds the watermark
    skew_max_ns: int = 10 * S  # beyond it from the median of live sources, a source is detached
    bound_cap_ns: int = 50 * MS  # greatest bound that a release waits for
    scope_ttl_ms: int = 3_600_000  # log time after which a silent scope is dropped
    edge_ttl_ns: int = 30 * S  # event time after which an unmatched endpoint is given up
    rows_held_max: int = 4_000_000  # by all scopes of a partition; the scope that holds most gives way
    pending_max: int = 4_000_000  # endpoints waiting in one scope
    epsilon_max: float = 1e-6  # statistical bounds that fail more often than this prove nothing
    clock_drift_ppb: float = 50_000.0  # declared greatest rate of any clock against what it was measured by
    clock_void_after_s: float = 1_000.0  # a measured state without a newer sample is unknown after that
    part_bytes_max: int = 480 * 1024

    def __post_init__(self) -> None:
        if not 1 * MS <= self.window_ns <= 4 * S:
            raise Usage(f"a window of {self.window_ns} ns; choose 1 ms to 4 s")
        for name in ("join_grace_ms", "idle_after_ms", "skew_max_ns", "bound_cap_ns", "edge_ttl_ns"):
            if getattr(self, name) < 0:
                raise Usage(f"{name} is negative")
        _ = self.declared
        if self.rows_held_max < 1 or self.pending_max < 1:
            raise Usage("rows_held_max and pending_max must allow at least one row")

    @property
    def declared(self) -> Declared:
        """What is declared of the clocks. Raises Usage."""
        return Declared(self.clock_drift_ppb, self.clock_void_after_s, self.epsilon_max)
