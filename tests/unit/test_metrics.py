from pathlib import Path

from schemas import metrics
from schemas.metrics import METRICS

REPO = Path(__file__).resolve().parents[2]


def test_the_page_is_current() -> None:
    assert (REPO / "docs" / "metrics.md").read_text() == metrics.page(), "run python -m schemas.metrics"


def test_names_are_prometheus_names() -> None:
    for metric in METRICS.values():
        assert metric.exported.replace("_", "").isalnum()
        assert metric.exported == metric.exported.lower()
        assert set(metric.labels).isdisjoint({"tenant", "stage", "instance", "le"}), metric.name
        assert metric.meaning.endswith("."), metric.name


def test_check_names_what_is_wrong() -> None:
    assert metrics.check({"late": {("future",): 1}, "windows": 3}, "merge") == []
    assert metrics.check({"wonders": 1}) == ["wonders is not in schemas.metrics"]
    assert metrics.check({"late": 1}) == ["late has labels ('reason',), not values ()"]
    assert metrics.check({"late": {("a", "b"): 1}}) == ["late has labels ('reason',), not values ('a', 'b')"]
    assert metrics.check({"edges": {("launch", "proven"): 1}}, "paths") == [
        "edges is not listed for stage paths"
    ]


def test_values_of_labels_fit_the_metrics() -> None:
    for name, values in metrics.LABEL_VALUES.items():
        assert METRICS[name].kind == "counter"
        assert {len(value) for value in values} == {len(METRICS[name].labels)}, name
        assert len(set(values)) == len(values), name


def test_what_a_stage_counts_before_it_counts() -> None:
    zeros = metrics.zeros("merge")
    assert metrics.check(zeros, "merge") == []
    assert zeros["late"] == {("late",): 0, ("future",): 0, ("closed",): 0}
    assert zeros["commits"] == 0
    edges = zeros["edges"]
    assert isinstance(edges, dict)
    assert len(edges) == 20
    assert edges["collective", "concurrent"] == 0
    assert metrics.zeros("incidents") == {
        "incidents": {("open",): 0, ("update",): 0, ("resolve",): 0},
        "findings_skipped": 0,
        "unreadable": {("malformed",): 0, ("unknown_schema",): 0},
    }
