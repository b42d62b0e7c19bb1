"""Asking many switches at once for their tables, with time-outs, a rate limit, and a check that nothing moved.

How it goes:

1. Every switch is read, as many at a time as allowed: its route generation, then its table.
2. When all are read, each is asked for its generation again. What changed since it was read would mix two states
   of the fabric in one path: it is read again, and checked again, up to `attempts` times.
3. What still changes is `inconsistent`; what did not answer in time is `unreached`, with the reason. Both are
   listed, never guessed, and hold up nobody else for longer than their own time-out.

How a switch is asked is a Device: over ssh (producers.fabric.shell), gNMI, or made up in a test.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeVar

from producers.fabric.routes_text import Exact
from schemas.errors import MalformedInput, TempoError, cause_of
from schemas.network import FlowKey, LidTable, RouteTable

T = TypeVar("T")
Table = RouteTable | LidTable
Question = tuple[str, FlowKey, str]  # (switch, flow, ingress port)
TIMED_OUT: Final = "no answer in time"


class Device(Protocol):
    """How switches are asked. Each call may raise OSError, TimeoutError or a TempoError: the switch is unreached."""

    async def read(self, switch: str) -> Table:
        """The switch's table, with the generation that it had before it was read."""
        ...

    async def generation(self, switch: str) -> str:
        """Something that changes whenever a route does."""
        ...

    async def exact(self, question: Question) -> Exact | None:
        """The way that the switch itself says a flow takes; None where it cannot say."""
        ...


@dataclass(frozen=True)
class Limits:
    """At most so many questions at a time and so many a second in all; each may take `timeout_s`."""

    concurrent: int = 128
    timeout_s: float = 2.0
    per_second: float | None = None
    attempts: int = 3

    def __post_init__(self) -> None:
        assert self.concurrent > 0
        assert self.timeout_s > 0
        assert self.attempts > 0
        assert self.per_second is None or self.per_second > 0


@dataclass
class Collected:
    """Tables by switch; why others are missing; how many questions were asked, and how many switches again."""

    tables: dict[str, Table] = field(default_factory=dict)
    unreached: dict[str, str] = field(default_factory=dict)
    inconsistent: set[str] = field(default_factory=set)
    asked: int = 0
    again: int = 0


class _Asker:
    """Questions within the limits."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._free = asyncio.Semaphore(limits.concurrent)
        self._next = 0.0
        self.asked = 0

    async def ask(self, question: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """The answer. Raises TimeoutError, and what the device raises."""
        async with self._free:
            await self._turn()
            self.asked += 1
            task = asyncio.ensure_future(question())
            done, _ = await asyncio.wait({task}, timeout=self._limits.timeout_s)
            if not done:
                # Not awaited: a device that ignores its cancellation must not hold up the others.
                task.cancel()
                raise TimeoutError(TIMED_OUT)
            return task.result()

    async def _turn(self) -> None:
        """Wait for this question's place in time."""
        rate = self._limits.per_second
        if rate is None:
            return
        loop = asyncio.get_running_loop()
        at = max(self._next, loop.time())
        self._next = at + 1 / rate
        await asyncio.sleep(at - loop.time())


async def collect(switches: Iterable[str], device: Device, limits: Limits) -> Collected:
    """Tables of all switches, as they stood together. See the file's header."""
    out = Collected()
    asker = _Asker(limits)
    wanted: Sequence[str] = list(dict.fromkeys(switches))
    for attempt in range(limits.attempts):
        if attempt:
            out.again += len(wanted)
        await asyncio.gather(*(_read(switch, device, asker, out) for switch in wanted))
        # All of them, every time: what was read again is of a later moment than the rest.
        check = list(out.tables)
        moved = await asyncio.gather(*(_moved(switch, device, asker, out) for switch in check))
        wanted = [switch for switch, changed in zip(check, moved, strict=True) if changed]
        if not wanted:
            break
    for switch in wanted:
        out.inconsistent.add(switch)
        out.tables.pop(switch, None)
    out.asked = asker.asked
    return out


async def _read(switch: str, device: Device, asker: _Asker, out: Collected) -> None:
    try:
        out.tables[switch] = await asker.ask(lambda: device.read(switch))
    except (TempoError, OSError, TimeoutError) as error:
        _lost(switch, error, out)


async def _moved(switch: str, device: Device, asker: _Asker, out: Collected) -> bool:
    try:
        now = await asker.ask(lambda: device.generation(switch))
    except (TempoError, OSError, TimeoutError) as error:
        _lost(switch, error, out)
        return False
    return now != out.tables[switch].generation


def _lost(switch: str, error: Exception, out: Collected) -> None:
    out.tables.pop(switch, None)
    out.unreached[switch] = cause_of(error)


async def answers(
    questions: Iterable[Question], device: Device, limits: Limits
) -> tuple[dict[Question, Exact], dict[Question, str]]:
    """(answers, why the others have none) of questions that a walk had open."""
    asker = _Asker(limits)
    found: dict[Question, Exact] = {}
    failed: dict[Question, str] = {}

    async def one(question: Question) -> None:
        try:
            answer = await asker.ask(lambda: device.exact(question))
        except (MalformedInput, TempoError, OSError, TimeoutError) as error:
            failed[question] = cause_of(error)
            return
        if answer is None:
            failed[question] = "the device cannot say"
        else:
            found[question] = answer

    await asyncio.gather(*(one(question) for question in dict.fromkeys(questions)))
    return found, failed


def run(work: Awaitable[T]) -> T:
    """The result of a coroutine of this module, for callers that are not asynchronous."""

    async def main() -> T:
        return await work

    return asyncio.run(main())
