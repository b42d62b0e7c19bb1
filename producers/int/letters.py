"""Dead letters of one collector, rationed: noise on its port must not fill the tenant's topic.

Of each sender, port and reason the first WHOLE datagrams of an interval come out whole, a letter each. The
others are counted, and one letter without a payload at the interval's end says how many there were. So the
sum of `inputs` over all letters is the number of malformed datagrams, whatever their rate. Senders can be
forged: beyond KEYS_MAX of them, all the others of an interval share one ration.

Time is that of the datagrams' own stamps, so a capture read twice gives the same letters.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from schemas.records import PAYLOAD_BYTES_MAX, DeadLetter

WHOLE: Final = 4
KEYS_MAX: Final = 32
INTERVAL_NS: Final = 10_000_000_000
OTHERS: Final = "other senders"


@dataclass(frozen=True)
class Malformed:
    """A datagram that is no report. `offset`: its byte in the file, -1 if it came live."""

    reason: str
    detail: str
    sender: str
    port: int
    stamp_ns: int
    offset: int
    payload: bytes


@dataclass
class _Ration:
    """What an interval has seen of one key."""

    whole: int = 0
    counted: int = 0
    last_ns: int = 0


class Letters:
    """Makes the dead letters of one collector. `origin` names its input in them."""

    def __init__(self, tenant: str, origin: str) -> None:
        self._tenant, self._origin = tenant, origin
        self._begin_ns: int | None = None
        self._rations: dict[tuple[str, int, str], _Ration] = {}

    def take(
        self, reason: str, sender: str, port: int, stamp_ns: int, whole: Callable[[], Malformed]
    ) -> Iterator[DeadLetter]:
        """What is due before this datagram, and its own letter if it comes out whole.

        `whole` gives the datagram; it is asked only then.
        """
        yield from self.due(stamp_ns)
        if self._begin_ns is None:
            self._begin_ns = stamp_ns
        key = (sender, port, reason)
        if key not in self._rations and len(self._rations) >= KEYS_MAX:
            key = (OTHERS, -1, reason)
        ration = self._rations.setdefault(key, _Ration())
        if ration.whole < WHOLE:
            ration.whole += 1
            yield self._of(whole())
        else:
            ration.counted += 1
            ration.last_ns = stamp_ns

    def due(self, now_ns: int) -> Iterator[DeadLetter]:
        """The counts of an interval that is over at `now_ns`; also where the clock was set back before it."""
        begin_ns = self._begin_ns
        if begin_ns is not None and not begin_ns <= now_ns < begin_ns + INTERVAL_NS:
            yield from self.end()

    def end(self) -> Iterator[DeadLetter]:
        """The counts so far; the next datagram begins an interval."""
        rations, self._rations, self._begin_ns = self._rations, {}, None
        for (sender, port, reason), ration in rations.items():
            if ration.counted:
                yield self._counted(sender, port, reason, ration)

    def _of(self, datagram: Malformed) -> DeadLetter:
        return DeadLetter(
            tenant=self._tenant,
            reason=datagram.reason,
            detail=f"{datagram.detail}; from {datagram.sender}",
            topic=f"{self._origin}:{datagram.port}",
            partition=-1,
            offset=datagram.offset,
            append_ms=datagram.stamp_ns // 1_000_000,
            events=0,
            payload=datagram.payload[:PAYLOAD_BYTES_MAX],
        )

    def _counted(self, sender: str, port: int, reason: str, ration: _Ration) -> DeadLetter:
        return DeadLetter(
            tenant=self._tenant,
            reason=reason,
            detail=f"{ration.counted} more datagrams like the last {WHOLE}, counted and not kept; from {sender}",
            topic=self._origin if port < 0 else f"{self._origin}:{port}",
            partition=-1,
            offset=-1,
            append_ms=ration.last_ns // 1_000_000,
            events=0,
            payload=b"",
            inputs=ration.counted,
        )
