"""Asking many switches at once: limits, hung and changing ones, and answers for single flows."""

import asyncio
import json
from dataclasses import replace
from ipaddress import ip_network

import pytest

from producers.fabric.query import Collected, Limits, Question, answers, collect, run
from producers.fabric.routes_text import Exact
from producers.fabric.shell import Shell, Target, digest
from producers.report import Report
from schemas.errors import Usage
from schemas.network import FlowKey, NextHop, Route, RouteTable

SWITCHES = [f"sw{k}" for k in range(256)]
KEY = FlowKey("10.0.0.1", "10.1.0.1")


def table(switch: str, generation: int) -> RouteTable:
    hop = NextHop(f"10.0.0.{generation}", "Ethernet0")
    return RouteTable(
        switch, {"default": (Route(ip_network("0.0.0.0/0"), (hop,)),)}, generation=str(generation)
    )


class Made:
    """Switches whose answers wait until as many questions are open as can be: a barrier instead of a clock.

    `moves`: how often a switch's routes change, one change each time that it is read. `hung` ones never answer.
    """

    def __init__(
        self, together: int = 1, hung: tuple[str, ...] = (), moves: dict[str, int] | None = None
    ) -> None:
        self.open = self.most = 0
        self.log: list[tuple[str, str]] = []
        self._hung, self._moves = hung, dict(moves or {})
        self._generation: dict[str, int] = {}
        self._together = together
        self._full = asyncio.Event()

    async def _answer(self, kind: str, switch: str) -> None:
        self.log.append((kind, switch))
        self.open += 1
        self.most = max(self.most, self.open)
        try:
            if switch in self._hung:
                await asyncio.Event().wait()
            if self.open >= self._together:
                self._full.set()
            await self._full.wait()
        finally:
            self.open -= 1

    async def read(self, switch: str) -> RouteTable:
        generation = self._generation.get(switch, 1)
        await self._answer("read", switch)
        if self._moves.get(switch, 0) > 0:
            self._moves[switch] -= 1
            self._generation[switch] = generation + 1
        return table(switch, generation)

    async def generation(self, switch: str) -> str:
        await self._answer("generation", switch)
        return str(self._generation.get(switch, 1))

    async def exact(self, question: Question) -> Exact | None:
        await self._answer("exact", question[0])
        return None if question[0] == "sw1" else Exact("Ethernet0")


def asked(device: Made, limits: Limits, switches: list[str] = SWITCHES) -> Collected:
    return run(collect(switches, device, limits))


def test_256_switches_with_one_hung_and_one_changing() -> None:
    device = Made(together=128, hung=("sw7",), moves={"sw9": 1})
    found = asked(device, Limits(concurrent=128, timeout_s=5))
    assert device.most == 128  # as many at a time as allowed: 128 times as fast as one after the other
    assert sorted(found.tables) == sorted(set(SWITCHES) - {"sw7"})
    assert found.unreached == {"sw7": "no answer in time"}
    assert found.inconsistent == set()
    assert found.tables["sw9"].generation == "2"
    assert (found.again, found.asked) == (1, 256 + 255 + 1 + 255)


def test_what_never_stands_still_is_inconsistent_and_nothing_else_is() -> None:
    device = Made(moves={"sw1": 99})
    found = asked(device, Limits(attempts=3), ["sw0", "sw1", "sw2"])
    assert (sorted(found.tables), found.inconsistent) == (["sw0", "sw2"], {"sw1"})
    assert [kind for kind, switch in device.log if switch == "sw1"] == ["read", "generation"] * 3


def test_a_switch_that_moves_while_another_is_read_again_is_read_again_too() -> None:
    class Late(Made):
        async def read(self, switch: str) -> RouteTable:
            found = await super().read(switch)
            if switch == "sw1" and len([e for e in self.log if e == ("read", "sw1")]) == 2:
                self._generation["sw0"] = 5
            return found

    found = asked(Late(moves={"sw1": 1}), Limits(), ["sw0", "sw1"])
    assert (found.tables["sw0"].generation, found.inconsistent) == ("5", set())


def test_no_more_at_a_time_than_allowed() -> None:
    device = Made(together=3)
    asked(device, Limits(concurrent=3), SWITCHES[:20])
    assert device.most == 3


def test_a_rate_limit_spaces_questions() -> None:
    times: list[float] = []

    class Timed(Made):
        async def read(self, switch: str) -> RouteTable:
            times.append(asyncio.get_running_loop().time())
            return await super().read(switch)

    asked(Timed(), Limits(per_second=500), SWITCHES[:10])
    assert times[-1] - times[0] >= 9 / 500 * 0.99


def test_a_switch_that_refuses_is_unreached_with_its_reason() -> None:
    class Refusing(Made):
        async def generation(self, switch: str) -> str:
            raise ConnectionRefusedError("connection refused")

    found = asked(Refusing(), Limits(), ["sw0"])
    assert (found.tables, found.unreached) == ({}, {"sw0": "connection refused"})


def test_answers_for_flows() -> None:
    questions = [(f"sw{k}", KEY, "Ethernet4") for k in range(3)]
    found, failed = run(answers(questions, Made(), Limits()))
    assert found == {questions[0]: Exact("Ethernet0"), questions[2]: Exact("Ethernet0")}
    assert failed == {questions[1]: "the device cannot say"}


def test_over_a_shell() -> None:
    routes = json.dumps([{"dst": "10.1.0.0/16", "gateway": "10.0.0.1", "dev": "eth0"}])
    script = f"""case "$1" in *route*) echo '{routes}';; *) echo nope >&2; exit 3;; esac"""
    device = Shell(
        {"a": Target("host-a", "linux"), "b": Target("host-b", "sonic")},
        Report(),
        ("sh", "-c", script, "{address}"),
    )
    found = run(collect(["a", "b"], device, Limits()))
    assert found.unreached == {"b": "nope"}
    mine = found.tables["a"]
    assert isinstance(mine, RouteTable)
    assert mine.generation == digest(mine)
    with pytest.raises(Usage, match="no dialect"):
        Shell({"a": Target("x", "vax")}, Report())


def test_a_digest_is_of_what_is_forwarded() -> None:
    one = table("a", 1)
    assert digest(one) == digest(replace(one, generation="x"))
    assert digest(one) != digest(table("a", 2))
