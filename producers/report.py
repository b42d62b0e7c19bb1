"""What a producer tells about its input besides the events: what it skipped and why, and warnings."""

from dataclasses import dataclass, field
from typing import Any


@dataclass
class Report:
    """Counts of one run, filled while the producer reads. A producer with more to say derives from it."""

    events: int = 0
    batches: int = 0
    skipped: dict[str, int] = field(default_factory=dict)  # by reason
    warnings: list[str] = field(default_factory=list)  # one line each

    def skip(self, reason: str, count: int = 1) -> None:
        """Count input that no event was made of."""
        if count:
            self.skipped[reason] = self.skipped.get(reason, 0) + count

    def warn(self, line: str) -> None:
        """Say something once to whoever runs the producer."""
        self.warnings.append(line)

    def unused(self) -> dict[str, int]:
        """All input that no event was made of, by reason, as the metric `skipped` has it."""
        return dict(self.skipped)

    def fields(self) -> dict[str, Any]:
        """The producer's own fields of the `--json` result."""
        return {}
