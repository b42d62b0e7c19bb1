"""The file of what switches count in."""

from pathlib import Path

import pytest

from schemas.errors import Usage
from streams.paths.switches import SwitchUnits
from tempotrace import switchfile


def test_models_units_and_zeros(tmp_path: Path) -> None:
    file = tmp_path / "switches.yaml"
    file.write_text(
        "7: bmv2\n8: {unit_ns: 8, zero_ns: 1767225637000000000}\n'9': {latency_unit_ns: 6.4}\n10: ns\n"
    )
    assert switchfile.read(file) == (
        SwitchUnits(7, 1000.0, 1000.0),
        SwitchUnits(8, 8.0, None, 1767225637000000000),
        SwitchUnits(9, None, 6.4),
        SwitchUnits(10, 1.0, 1.0),
    )


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("- 7", "no mapping"),
        ("{", "cannot be read"),
        ("leaf1: bmv2", "a switch is a number"),
        ("-1: bmv2", "a switch is a number"),
        ("4294967295: bmv2", "a switch is a number"),
        ("7: tofino9", "no model 'tofino9'"),
        ("7: {}", "a model, or some of"),
        ("7: {unit: 8}", "a model, or some of"),
        ("7: {unit_ns: 0}", "unit_ns is a number"),
        ("7: {unit_ns: .nan}", "unit_ns is a number"),
        ("7: {latency_unit_ns: true}", "latency_unit_ns is a number"),
        ("7: {unit_ns: 1.0e+9}", "unit_ns is a number"),
        ("7: {zero_ns: 1.5}", "zero_ns is whole nanoseconds"),
        ("7: {zero_ns: 9999999999999999999}", "zero_ns is whole nanoseconds"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, text: str, says: str) -> None:
    file = tmp_path / "switches.yaml"
    file.write_text(text)
    with pytest.raises(Usage, match=says):
        switchfile.read(file)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(Usage, match="cannot be read"):
        switchfile.read(tmp_path / "none.yaml")
