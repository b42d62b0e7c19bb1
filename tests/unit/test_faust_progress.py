"""How far the input was read and worked through, markers too."""

from tempotrace.runtime.faust_kafka import Progress


def test_records_and_markers() -> None:
    changes: list[int] = []
    progress = Progress("findings", lambda: changes.append(1))
    progress.read(0, 4, [])
    assert progress.positions() == {0: 4}
    progress.read(0, 9, [5, 7])  # markers at 4, 6 and 8
    assert progress.positions() == {0: 5}
    progress.done(0, 5)
    assert progress.positions() == {0: 7}
    progress.done(0, 7)
    assert progress.positions() == {0: 9}
    progress.read(0, 12, [])  # an aborted tail
    assert progress.positions() == {0: 12}
    assert len(changes) == 5


def test_records_read_while_others_wait() -> None:
    progress = Progress("findings", lambda: None)
    progress.read(2, 3, [0, 1, 2])
    progress.done(2, 0)
    progress.read(2, 6, [3, 4])
    progress.read(2, 7, [])
    progress.done(2, 1)
    progress.done(2, 2)
    assert progress.positions() == {2: 3}
    progress.done(2, 3)
    progress.done(2, 4)
    assert progress.positions() == {2: 7}


def test_another_deal_of_partitions() -> None:
    progress = Progress("findings", lambda: None)
    progress.read(0, 3, [0, 1, 2])
    progress.reset()
    progress.done(0, 0)  # what was in hand at the time
    assert progress.positions() == {}
    progress.read(1, 5, [4])
    assert progress.positions() == {1: 4}


def test_records_that_were_dropped_and_read_again() -> None:
    """Faust drops what it has read when partitions are dealt, and reads from the committed offset again."""
    progress = Progress("findings", lambda: None)
    progress.read(0, 9, [7, 8])
    progress.done(0, 8)
    assert progress.positions() == {0: 7}
    progress.read(0, 10, [7, 8, 9])
    progress.done(0, 7)
    progress.done(0, 8)
    progress.done(0, 9)
    assert progress.positions() == {0: 10}
