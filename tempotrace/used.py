"""The one rule for input that can't be used, of every command that reads files.

Exit 0 if something of it was used: what was not is warned of, a line each, and counted. Exit 1 with one line
if nothing could be used, be it missing, unreadable, empty, broken or of a foreign format. Exit 2 is kept for
a wrong command line. With --json the object of a failure has `error` beside the counts.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from schemas.errors import MalformedInput

REASONS_MAX: Final = 3


class NothingUsed(MalformedInput):
    """No event was made of the input. `result`: what is to be told of it all the same, counts by reason."""

    def __init__(self, what: str, warnings: Sequence[str], result: Mapping[str, Any]) -> None:
        left = len(warnings) - REASONS_MAX
        more = f" (and {left} more)" if left > 0 else ""
        why = "; ".join(warnings[:REASONS_MAX]) or "it is empty"
        super().__init__(f"nothing of the {what} could be used: {why}{more}")
        self.result = {key: value for key, value in result.items() if key != "warnings"}


def require(used: int, what: str, warnings: Sequence[str], result: Mapping[str, Any]) -> None:
    """Raises NothingUsed unless something (events, samples) was made of the input."""
    if not used:
        raise NothingUsed(what, warnings, result)
