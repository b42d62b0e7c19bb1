"""Counters of a task, by name and labels (schemas.metrics says what each means)."""

from schemas.metrics import Value


class Counts:
    """Call it to count; zero is not kept."""

    def __init__(self) -> None:
        self.values: dict[str, dict[tuple[str, ...], int]] = {}

    def __call__(self, name: str, number: int, *labels: str) -> None:
        if number:
            by_label = self.values.setdefault(name, {})
            by_label[labels] = by_label.get(labels, 0) + number

    def totals(self) -> dict[str, Value]:
        """All counts; those without labels as plain numbers."""
        return {name: by[()] if list(by) == [()] else dict(by) for name, by in self.values.items()}
