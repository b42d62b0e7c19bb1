"""What the runner needs of a log that a group reads: Kafka's (kafka_log), or one made up by a test."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import NamedTuple, Protocol

from schemas.columns import Control
from schemas.processor import Record
from tempotrace.runtime.restore import Log, Loss

Place = tuple[str, int]  # topic by suffix, partition


class End(NamedTuple):
    """The end of a partition was reached: all up to `offset` was delivered, markers apart."""

    offset: int


class Appending(Protocol):
    """The few records that a runner itself adds."""

    def control(self, topic: str, partition: int, kind: Control) -> "Future[int]":
        """Append a control row without scope (tick, flush); the future gives its offset."""
        ...

    def loss(self, stage: str, loss: Loss) -> None:
        """Write to `deadletter` what input a partition goes on without; returns when acknowledged."""
        ...

    def acknowledged(self, future: "Future[int]") -> int:
        """Offset of an appended record, once the broker has it."""
        ...

    def serve(self) -> None:
        """Let acknowledgements come in."""
        ...


class GroupLog(Log, Protocol):
    """One member's view of the topics that its group reads."""

    @property
    def partitions(self) -> Mapping[str, int]:
        """Number of partitions by input."""
        ...

    @property
    def appender(self) -> Appending: ...

    def subscribe(
        self,
        assigned: Callable[[list[Place]], None],
        revoked: Callable[[list[Place]], None],
        lost: Callable[[list[Place]], None],
    ) -> None:
        """Join the group. The callbacks are called inside poll() and raise nothing."""
        ...

    def begin(self, positions: Mapping[Place, int]) -> None:
        """Read these partitions, from these offsets on; what was fetched before is not delivered any more."""
        ...

    def poll(self, seconds: float) -> list[tuple[Place, Record | End]]:
        """Wait for input, then take all that is there, each with the place it came from."""
        ...

    def ends(self, places: Sequence[Place], stable: bool = False) -> list[int]:
        """The offset after the last record of each; `stable`: before the first open transaction."""
        ...

    def take_refused(self) -> int:
        """Records since the last call whose tt-origin could not be read."""
        ...

    def commit_for_lag(self, positions: Mapping[Place, int]) -> None:
        """Tell the group how far we are, for lag only."""
        ...

    def leave(self) -> None:
        """Leave the group, so that others take over at once."""
        ...

    def close(self) -> None:
        """Let go of the broker."""
        ...
