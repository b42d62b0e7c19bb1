"""Flows, the links they take, and what crosses each link, from reports made by hand."""

from schemas import columns as c
from schemas.batch import Batch
from schemas.flow import flow_id
from tests.hops import MS, Collector, flows, links, paths_of, windows

A = ("10.0.0.1", "10.0.0.2", 4000, 4791)
B = ("10.0.0.3", "10.0.0.4", 4001, 4791)
A_ID, B_ID = flow_id(*A, 17), flow_id(*B, 17)
LEFT = [(100, 1, 101), (200, 1, 2), (101, 101, 5)]  # leaf 100, spine 200, leaf 101
RIGHT = [(100, 1, 102), (201, 1, 2), (101, 102, 5)]
LEFT_LINKS = ["100:101>200:1", "200:2>101:101", "101:5>"]
RIGHT_LINKS = ["100:102>201:1", "201:2>101:102", "101:5>"]


def test_a_flow_and_its_links() -> None:
    tap = Collector()
    tap.report(1 * MS, A, LEFT, length=1000)
    tap.report(7 * MS, A, LEFT, length=500)
    (window,) = windows(paths_of([tap.batch()]))
    assert (window.tenant, window.scope) == ("default", "fabric/0")
    assert window.window_end_ns - window.window_start_ns == 100 * MS
    assert flows(window) == {
        A_ID: {
            "path": [(link, 1.0) for link in LEFT_LINKS], "bytes": 1500, "reports": 2, "source": "observed",
            "src": A[0], "dst": A[1], "ports": (4000, 4791), "valid": (1 * MS, 7 * MS),
        }
    }  # fmt: skip
    assert links(window) == {
        ("hop0", LEFT_LINKS[0]): (1, 1500),
        ("hop1", LEFT_LINKS[1]): (1, 1500),
        ("last", LEFT_LINKS[2]): (1, 1500),
    }


def test_a_flow_over_two_paths_has_shares() -> None:
    tap = Collector()
    for turn in range(4):
        tap.report(turn * MS, A, RIGHT if turn == 2 else LEFT)
    (window,) = windows(paths_of([tap.batch()]))
    assert flows(window)[A_ID]["path"] == [
        (LEFT_LINKS[0], 0.75), (RIGHT_LINKS[0], 0.25),
        (LEFT_LINKS[1], 0.75), (RIGHT_LINKS[1], 0.25),
        ("101:5>", 1.0),
    ]  # fmt: skip
    assert links(window)["last", "101:5>"] == (1, 400)
    assert links(window)["hop0", RIGHT_LINKS[0]] == (1, 100)


def test_two_flows_share_a_link() -> None:
    tap = Collector()
    tap.report(1 * MS, A, LEFT)
    tap.report(2 * MS, B, [(100, 2, 101), (200, 1, 3)], length=40)
    (window,) = windows(paths_of([tap.batch()]))
    assert flows(window)[B_ID]["path"] == [(LEFT_LINKS[0], 1.0), ("200:3>", 1.0)]
    assert links(window)["hop0", LEFT_LINKS[0]] == (2, 140)


def test_a_probe_that_was_redirected_speaks_only_where_nothing_else_does() -> None:
    redirected = c.ReportFlag.FLOW | c.ReportFlag.REDIRECTED
    tap = Collector()
    tap.report(1 * MS, A, LEFT)
    tap.report(2 * MS, A, RIGHT, flags=redirected)
    tap.report(3 * MS, B, RIGHT, flags=redirected)
    (window,) = windows(paths_of([tap.batch()]))
    found = flows(window)
    assert (found[A_ID]["source"], found[A_ID]["path"]) == ("observed", [(link, 1.0) for link in LEFT_LINKS])
    assert (found[A_ID]["reports"], found[A_ID]["bytes"]) == (1, 200)
    assert (found[B_ID]["source"], found[B_ID]["path"]) == (
        "observed_probe",
        [(link, 1.0) for link in RIGHT_LINKS],
    )


def test_drops_queues_and_packets_without_a_flow_are_left_out() -> None:
    tap = Collector()
    tap.report(1 * MS, A, [(100, 1, None)], kind=c.HopKind.DROP, flags=c.ReportFlag.DROP)
    tap.report(2 * MS, A, [(100, 1, 101)], kind=c.HopKind.QUEUE, flags=c.ReportFlag.QUEUE)
    tap.report(3 * MS, None, LEFT)
    assert windows(paths_of([tap.batch()])) == []


def test_what_a_report_does_not_say_is_no_link() -> None:
    """Ports that are unknown are shown so; the last hop without an egress port names no link."""
    tap = Collector()
    tap.report(1 * MS, A, [(100, None, None), (200, None, None)], length=None)
    tap.report(2 * MS, B, [(300, 1, None)])
    (window,) = windows(paths_of([tap.batch()]))
    found = flows(window)
    assert (found[A_ID]["path"], found[A_ID]["bytes"]) == ([("100:?>200:?", 1.0)], 0)
    assert found[B_ID]["path"] == []
    assert links(window) == {("hop0", "100:?>200:?"): (1, 0)}


def test_reports_of_one_hop_each_are_not_taken_for_one() -> None:
    """Two collectors, and two lives of one, may number their reports alike."""
    first, second = Collector(), Collector("tap2/reports")
    again = Collector(incarnation=9)
    first.report(1 * MS, A, LEFT[:1])
    second.report(2 * MS, A, LEFT[:1])
    again.report(3 * MS, A, LEFT[:1])
    found = windows(paths_of([first.batch(), second.batch(), again.batch()]))
    assert sum(int(flows(window)[A_ID]["reports"]) for window in found) == 3


def many() -> list[Collector]:
    taps = [Collector(f"tap{n}/reports") for n in range(2)]
    for turn in range(60):
        for n, tap in enumerate(taps):
            flow = (f"10.0.{n}.1", f"10.0.{n}.{turn % 5 + 2}", 4000 + turn % 7, 4791)
            tap.report(turn * 9 * MS, flow, LEFT if turn < 40 or turn % 2 else RIGHT, length=100 + turn)
    return taps


def test_windows_in_parts_give_the_same() -> None:
    whole = paths_of([tap.batch() for tap in many()])
    assert len(windows(whole)) == 6
    assert paths_of([tap.batch() for tap in many()], part_bytes_max=3_000) == whole


def test_a_restart_anywhere_gives_the_same_bytes() -> None:
    def batches() -> list[Batch]:
        tap = Collector()
        out = []
        for turn in range(40):
            flow = (A[0], f"10.0.9.{turn % 3}", 4000, 4791)
            tap.report(turn * 11 * MS, flow, LEFT if turn < 25 else RIGHT)
            out.append(tap.batch())
        return out

    whole = paths_of(batches())
    assert len(windows(whole)) == 5
    for restart in (1, 3, 7):
        for size in (480 * 1024, 1_500):
            assert paths_of(batches(), restart, size) == whole, (restart, size)


def test_since_when_a_path_is_taken() -> None:
    tap = Collector()
    for turn in range(6):
        tap.report(turn * 100 * MS + MS, A, LEFT if turn < 3 else RIGHT)
    found = [flows(window)[A_ID]["valid"] for window in windows(paths_of([tap.batch()]))]
    assert found == [
        (1 * MS, 1 * MS), (1 * MS, 101 * MS), (1 * MS, 201 * MS),
        (301 * MS, 301 * MS), (301 * MS, 401 * MS), (301 * MS, 501 * MS),
    ]  # fmt: skip


def test_a_path_not_seen_for_long_is_forgotten() -> None:
    """What was known before 60 s of silence says nothing of how long the path has been taken."""
    tap = Collector()
    tap.report(MS, A, LEFT)
    for second in range(1, 63):
        tap.report(second * 1000 * MS, B, RIGHT)
    tap.report(62_050 * MS, A, LEFT)
    found = [flows(window) for window in windows(paths_of([tap.batch()]))]
    assert found[0][A_ID]["valid"] == (MS, MS)
    assert found[-1][A_ID]["valid"] == (62_050 * MS, 62_050 * MS)
    assert found[-1][B_ID]["valid"] == (1000 * MS, 62_000 * MS)
