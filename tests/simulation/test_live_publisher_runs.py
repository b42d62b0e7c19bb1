"""Whatever happens to broker and process, in any order: each event of each life arrives, in order."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.errors import BrokerAway
from tests.live_runs import Row, Run, expected, rows_in

STEP = st.one_of(
    st.tuples(st.just("emit"), st.integers(0, 4)),
    st.tuples(st.sampled_from(["send", "hold", "release", "refuse", "away", "kill", "wait"]), st.just(0)),
)


@given(steps=st.lists(STEP, max_size=60))
@settings(max_examples=150, deadline=None)
def test_whatever_happens_every_event_arrives_in_order(
    steps: list[tuple[str, int]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("live")
    incarnation = 1
    run = Run(folder)
    made: dict[int, int] = {1: 0}
    arrived: list[Row] = []
    lives: list[list[Row]] = []

    def take_log() -> None:
        rows = rows_in(run.transport)
        lives.append(rows)
        arrived.extend(rows)

    for action, number in steps:
        if action == "emit":
            run.emit(number, incarnation)
            made[incarnation] += number
        elif action == "send":
            run.live.send_once(0)
        elif action == "hold":
            run.transport.hold = True
        elif action == "release":
            run.transport.hold, run.transport.refuse, run.transport.away = False, None, None
        elif action == "refuse":
            run.transport.refuse = BrokerAway("refused")
        elif action == "away":
            run.transport.away = BrokerAway("away")
        elif action == "wait":
            run.clock.advance(1_000_000_000)
        else:
            take_log()
            run.kill()
            incarnation += 1
            made[incarnation] = 0
            run = Run(folder)
    run.transport.hold, run.transport.refuse, run.transport.away = False, None, None
    run.clock.advance(1_000_000_000)
    run.live.finish_writing()
    run.send()
    take_log()
    for rows in lives:  # one process sends each event once
        assert len(rows) == len(set(rows))
    unique = list(dict.fromkeys(arrived))
    for number, count in made.items():
        assert [row for row in unique if row[1] == number] == expected(0, count, number)
    assert run.live.backlog == 0
    assert run.spool.empty
    run.kill()
