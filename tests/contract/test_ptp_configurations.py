"""deploy/ptp: every line has its reason, and linuxptp's daemons run on the files.

The daemons run in network namespaces, without the right to set the clock, and with software stamps in place of
the hardware that is not here: a grandmaster, a boundary clock and a host, which elect each other.
"""

import os
import re
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from producers.host.logs import Options
from tempotrace.clockcheck import check
from tests.paths import REPO

FOLDER = REPO / "deploy" / "ptp"
FILES = sorted(FOLDER.glob("*.conf"))
DAEMONS = {"ptp4l", "phc2sys", "ts2phc"}
WITHOUT_CLOCK = ["setpriv", "--bounding-set=-sys_time", "--inh-caps=-sys_time"]
PATIENCE_S = 40.0


def settings(text: str) -> list[tuple[str, str, str]]:
    """(section, option, value) of a configuration."""
    section, out = "", []
    for line in text.splitlines():
        if line.startswith("["):
            section = line.strip("[]")
        elif line and not line.startswith("#"):
            option, value = line.split(maxsplit=1)
            out.append((section, option, value))
    return out


def test_the_three_roles_have_their_daemons() -> None:
    assert {path.name for path in FILES} == {
        "ptp4l.host.conf", "phc2sys.host.conf", "ptp4l.boundary.conf", "ts2phc.boundary.conf",
        "ptp4l.grandmaster.conf", "ts2phc.grandmaster.conf", "phc2sys.grandmaster.conf",
    }  # fmt: skip


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_line_has_its_reason_above_it(path: Path) -> None:
    before = ""
    bare = []
    for line in path.read_text().splitlines():
        if line and not line.startswith("#") and not before.startswith("#"):
            bare.append(line)
        before = line
    assert [line for line in bare if line != "[global]"] == []
    named = [(section, option) for section, option, _ in settings(path.read_text())]
    assert len(named) == len(set(named)) >= 6


def test_all_speak_the_same_domain() -> None:
    domains = {
        path.name: {value for _, option, value in settings(path.read_text()) if option == "domainNumber"}
        for path in FILES
        if not path.name.startswith("ts2phc")
    }
    assert set(map(frozenset, domains.values())) == {frozenset({"24"})}


def test_no_clock_is_stepped_after_the_start() -> None:
    """A step ends an epoch; a grandmaster's ptp4l steers nothing at all."""
    for path in FILES:
        held = {option: value for _, option, value in settings(path.read_text())}
        assert held.get("step_threshold") == "0.0" or held.get("free_running") == "1", path.name


def needs_linuxptp() -> None:
    missing = sorted(name for name in [*DAEMONS, "setpriv"] if shutil.which(name) is None)
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)} (linuxptp, util-linux)")


@dataclass
class Running:
    """A daemon and what it has said."""

    process: subprocess.Popen[str]
    reader: threading.Thread = field(init=False)
    lines: list[str] = field(default_factory=list)
    changed: threading.Condition = field(default_factory=threading.Condition)

    def __post_init__(self) -> None:
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self.changed:
                self.lines.append(line.rstrip())
                self.changed.notify_all()
        with self.changed:
            self.changed.notify_all()

    def says(self, pattern: str) -> str:
        """Wait until a line has this in it."""
        end = time.monotonic() + PATIENCE_S
        with self.changed:
            while True:
                for line in self.lines:
                    if re.search(pattern, line):
                        return line
                left = end - time.monotonic()
                assert left > 0, f"never said {pattern!r}: {self.lines[-20:]}"
                assert self.process.poll() is None, (
                    f"ended with {self.process.returncode}: {self.lines[-20:]}"
                )
                self.changed.wait(min(left, 0.5))


@dataclass
class Lab:
    """Namespaces gm - bc - host, and one more behind the boundary clock, joined by pairs of interfaces."""

    folder: Path
    mark: str
    running: list[Running] = field(default_factory=list)

    def namespace(self, name: str) -> str:
        return f"tt{self.mark}{name}"

    def configuration(self, name: str, interfaces: dict[str, str]) -> Path:
        """A copy of a file with interfaces that exist here."""
        text = (FOLDER / name).read_text()
        for old, new in interfaces.items():
            assert f"[{old}]" in text
            text = text.replace(f"[{old}]", f"[{new}]")
        out = self.folder / name
        out.write_text(text)
        return out

    def start(self, namespace: str, command: list[str]) -> Running:
        whole = ["ip", "netns", "exec", self.namespace(namespace), *WITHOUT_CLOCK, *command]
        process = subprocess.Popen(whole, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        out = Running(process)
        self.running.append(out)
        return out

    def ptp4l(self, namespace: str, configuration: Path) -> Running:
        software = ["--time_stamping", "software", "--hwts_filter", "normal", "--free_running", "1"]
        socket = ["--uds_address", str(self.folder / f"{namespace}.sock")]
        return self.start(namespace, ["ptp4l", "-f", str(configuration), *software, *socket])


def run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    needs_linuxptp()
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("network namespaces need root and the command ip")
    made = Lab(tmp_path, f"{os.getpid() % 100000}")
    names = ["gm", "bc", "host", "rack"]
    try:
        for name in names:
            run("ip", "netns", "add", made.namespace(name))
        links = [("gm", "gm0", "bc", "up0"), ("bc", "down0", "host", "h0"), ("bc", "down1", "rack", "r0")]
        for near, near_if, far, far_if in links:
            run("ip", "link", "add", near_if, "netns", made.namespace(near), "type", "veth",
                "peer", "name", far_if, "netns", made.namespace(far))  # fmt: skip
            for space, interface in ((near, near_if), (far, far_if)):
                run("ip", "-n", made.namespace(space), "link", "set", interface, "up")
    except subprocess.CalledProcessError as error:
        _remove(made, names)
        pytest.skip(f"no network namespaces here: {error.stderr!r}")
    try:
        yield made
    finally:
        for each in made.running:
            each.process.terminate()
        for each in made.running:
            each.process.wait(10)
            assert each.process.stdout is not None
            each.reader.join(10)
            each.process.stdout.close()
        _remove(made, names)


def _remove(made: Lab, names: list[str]) -> None:
    for name in names:
        subprocess.run(["ip", "netns", "del", made.namespace(name)], check=False, capture_output=True)


def test_grandmaster_boundary_clock_and_host_find_each_other(lab: Lab) -> None:
    grandmaster = lab.ptp4l("gm", lab.configuration("ptp4l.grandmaster.conf", {"ens1f0": "gm0"}))
    ports = {"ens1f0": "up0", "ens2f0": "down0", "ens2f1": "down1"}
    boundary = lab.ptp4l("bc", lab.configuration("ptp4l.boundary.conf", ports))
    host = lab.ptp4l("host", lab.configuration("ptp4l.host.conf", {"ens1f0": "h0"}))
    grandmaster.says(r"port 1: .*to GRAND_MASTER|assuming the grand master role")
    boundary.says(r"port 1: .*UNCALIBRATED")
    boundary.says(r"port 2: .*to (GRAND_)?MASTER")
    boundary.says(r"port 3: .*to (GRAND_)?MASTER")
    host.says(r"selected best master clock")
    host.says(r"port 1: .*to UNCALIBRATED")
    # A free-running clock stays uncalibrated, and says each window what it sees.
    host.says(r"master offset +-?\d+ s\d freq +[-+]\d+ path delay +-?\d+")
    # What it says is what tempotrace reads.
    log = lab.folder / "host.log"
    log.write_text("\n".join(host.lines) + "\n")
    found, _ = check([log], Options(host="h"))
    assert (found["lines"]["unknown"], found["lines"]["unknown_samples"]) == (0, [])
    assert [entry["samples"] > 0 for entry in found["clocks"]] == [True]


def test_a_hosts_phc2sys_takes_its_file_and_meets_ptp4l(lab: Lab) -> None:
    lab.ptp4l("host", lab.configuration("ptp4l.host.conf", {"ens1f0": "h0"})).says("port 1: ")
    given = lab.configuration("phc2sys.host.conf", {})
    process = subprocess.run(
        ["ip", "netns", "exec", lab.namespace("host"), *WITHOUT_CLOCK, "phc2sys", "-f", str(given), "-a", "-r",
         "-R", "16", "-n", "24", "-z", str(lab.folder / "host.sock")],
        capture_output=True, text=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    # It has asked ptp4l, in its domain, for its ports; none of them has a card with a clock.
    assert "no suitable ports available" in process.stdout + process.stderr


def test_a_grandmasters_phc2sys_takes_its_file(lab: Lab) -> None:
    lab.ptp4l("gm", lab.configuration("ptp4l.grandmaster.conf", {"ens1f0": "gm0"})).says("port 1: ")
    given = lab.configuration("phc2sys.grandmaster.conf", {})
    process = subprocess.run(
        ["ip", "netns", "exec", lab.namespace("gm"), *WITHOUT_CLOCK, "phc2sys", "-f", str(given), "-s", "gm0",
         "-c", "CLOCK_REALTIME", "-O", "-37", "-R", "4", "-n", "24", "-z", str(lab.folder / "gm.sock")],
        capture_output=True, text=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    # The file is read; what is missing is a card with a clock.
    said = process.stdout + process.stderr
    assert "failed to parse configuration file" not in said
    assert "interface gm0 does not have a PHC" in said


@pytest.mark.parametrize("name", ["ts2phc.boundary.conf", "ts2phc.grandmaster.conf"])
def test_ts2phc_takes_its_files_and_then_misses_the_hardware(name: str, tmp_path: Path) -> None:
    needs_linuxptp()
    text = (FOLDER / name).read_text()
    interfaces = {section for section, _, _ in settings(text) if section != "global"}
    if any((Path("/sys/class/net") / each).exists() for each in interfaces):
        pytest.skip("this machine has an interface of that name, and might have a clock to set")
    source = ["-s", "nmea"] if "grandmaster" in name else []

    def said(content: str) -> str:
        path = tmp_path / name
        path.write_text(content)
        ran = subprocess.run(
            [*WITHOUT_CLOCK, "ts2phc", "-f", str(path), *source, "--free_running", "1"],
            capture_output=True, text=True, timeout=PATIENCE_S, check=False,
        )  # fmt: skip
        return ran.stdout + ran.stderr

    good = said(text)
    assert "failed to parse configuration file" not in good
    assert any(f"unknown clock {each}: No such device" in good for each in interfaces), good
    # The same file with a wrong value is refused, so the one above was read.
    assert "failed to parse configuration file" in said(
        text.replace("rising", "sideways").replace("both", "up")
    )
