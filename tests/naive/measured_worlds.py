"""Small worlds whose clocks are measured."""

from dataclasses import replace
from typing import Any

from schemas import columns as c
from schemas.pack import Source
from tests.naive.log import Post, Row
from tests.naive.worlds import MS, Thread, World


class MeasuredWorld(World):
    """A world whose clocks are measured, some stepped by their daemons, with and without a word of it."""

    def __init__(self, seed: int) -> None:
        self.logs: dict[str, int] = {}
        super().__init__(seed, placed=True)

    def _posts(self, publisher: str, threads: list[Thread], now: int, final: bool) -> None:
        super()._posts(publisher, threads, now, final)
        if self.chance(0.5):
            self._log(publisher, threads, now, final)

    def _log(self, publisher: str, threads: list[Thread], now: int, final: bool) -> None:
        """A batch of what a daemon logs of the clocks of these threads."""
        rows, first = [], self.logs.get(publisher, 0)
        thread = threads[0]
        stamp = thread.source.clock
        if self.chance(0.3):  # a log that does not count epochs, in coarse steps
            stamp = replace(stamp, epoch=0, quantum_ns=int(self.rng.choice([1, 100_000])))
        source = Source(f"{publisher}/log", f"{publisher}/log", stamp, 5, ordered=publisher.endswith("1"))
        for _ in range(self.pick(0, 3)):
            of = threads[self.pick(0, len(threads) - 1)]
            name = str(
                self.rng.choice([of.source.clock.clock_id, *(parent.clock_id for parent in of.parents)])
            )
            at = thread.raw(now - self.pick(0, 4) * MS // 2)
            parent = str(
                self.rng.choice(["10.0.0.1", "10.0.0.1", "10.0.0.2", of.source.clock.parent or "TAI"])
            )
            if parent == name:
                continue
            if self.chance(0.1):
                for other in threads:
                    other.error_ns += self.pick(-3, 3) * MS if self.chance(0.5) else 0
                more: dict[str, Any] = {"servo": 1, "parent": parent}
                rows.append(
                    Row(source, at, 0, c.ClockKindOfRow.SERVO, "phc2sys.servo", (), name, tuple(more.items()))
                )
                continue
            delay = int(self.rng.choice([100, 10_000, 3 * MS]))
            offset = of.error_ns + self.pick(-delay, delay) // 2
            offset *= 3 if self.chance(0.1) else 1
            more = {
                "offset_ns": offset, "delay_ns": delay, "error_ns": (delay + 1) // 2 + self.pick(0, 3) * MS,
                "parent": parent,
            }  # fmt: skip
            row = Row(
                source,
                at,
                0,
                c.ClockKindOfRow.MEASUREMENT,
                "chrony.measurement",
                (),
                name,
                tuple(more.items()),
            )
            rows.append(row)
        self.logs[publisher] = first + len(rows)
        parents = tuple(dict.fromkeys(parent for each in threads for parent in each.parents))
        mark = thread.raw(now - 3 * MS)
        self.log.messages.append(
            Post(
                self._ms(now), self._scope(publisher), f"{publisher}/log", "clock", (source,), (first,),
                tuple(rows), (mark,), (final,), parents,
            )
        )  # fmt: skip
