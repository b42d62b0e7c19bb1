"""A mesh of processes on loopback: every probe has both its sides, by kernel stamps that keep the order."""

import ast
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from producers.ledger import sources_of
from schemas import columns as c
from schemas.batch import Batch
from schemas.codec import decode_batch
from tests.fake_transports import read_log
from tests.paths import REPO
from tests.ports import local_peers

PROBES = 200


def start(log: Path, node: str, ports: dict[str, int]) -> "subprocess.Popen[str]":
    peers = [f"{name}={port}" for name, port in ports.items() if name != node]
    return subprocess.Popen(
        [sys.executable, "-m", "tests.contract.mesh_node", str(log), node, str(ports[node]), *peers],
        cwd=REPO,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(REPO)},
    )


def batches(log: Path) -> list[Batch]:
    return [decode_batch(value) for value in read_log(log)]


def rows(read: list[Batch]) -> int:
    return sum(batch.count for batch in read if batch.family == "probe")


def run(folder: Path, count: int, disturb: int = 0) -> tuple[dict[str, list[Batch]], dict[str, Any]]:
    """Run nodes until each has a few hundred rows; their batches and reports, by node."""
    ports = local_peers(count)
    logs = {node: folder / node for node in ports}
    processes = {node: start(logs[node], node, ports) for node in ports}
    noise = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    deadline = time.monotonic() + 60
    while any(rows(batches(log)) < PROBES for log in logs.values()):
        assert time.monotonic() < deadline, "the nodes do not find each other"
        assert all(process.poll() is None for process in processes.values())
        for number in range(disturb):
            noise.sendto(b"\xff" * number, ("127.0.0.1", ports["n0"]))
    noise.close()
    reports = {}
    for process in processes.values():
        process.send_signal(signal.SIGTERM)
    for node, process in processes.items():
        output, _ = process.communicate(timeout=20)
        assert process.returncode == 0
        reports[node] = ast.literal_eval(output)
    return {node: batches(log) for node, log in logs.items()}, reports


def table(read: list[Batch]) -> "np.ndarray[Any, Any]":
    """(kind, key, stamp) of each row in order."""
    out = []
    for batch in read:
        if batch.family == "probe" and batch.count:
            assert list(batch.data["ep_row"]) == list(range(batch.count))
            out += list(
                zip(
                    batch.column("kind").tolist(),
                    batch.data["ep_key"].tolist(),
                    batch.raw_ns().tolist(),
                    strict=True,
                )
            )
    return np.array(out, dtype=[("kind", "u1"), ("key", "u8"), ("ns", "i8")])


@pytest.mark.parametrize("count", [2, 4])
def test_every_probe_has_both_sides(tmp_path: Path, count: int) -> None:
    logs, reports = run(tmp_path, count)
    tables = {node: table(read) for node, read in logs.items()}
    everything = np.concatenate(list(tables.values()))
    sent = everything[everything["kind"] == c.ProbeKind.SEND]
    received = everything[everything["kind"] == c.ProbeKind.RECEIVE]
    assert len(sent) >= PROBES
    assert len(set(sent["key"].tolist())) == len(sent)
    assert sorted(sent["key"]) == sorted(received["key"])
    by_key = dict(zip(received["key"].tolist(), received["ns"].tolist(), strict=True))
    flight = np.array(
        [by_key[key] - ns for key, ns in zip(sent["key"].tolist(), sent["ns"].tolist(), strict=True)]
    )
    assert flight.min() >= 0  # one kernel clock stamps both sides
    assert np.median(flight) < 1_000_000
    for node, read in logs.items():
        assert reports[node]["skipped"] == {}
        assert reports[node]["peers"] == sorted(other for other in logs if other != node)
        assert reports[node]["sent"] + reports[node]["received"] == len(tables[node])
        stamps = tables[node]["ns"]
        assert (np.diff(stamps) >= 0).all()
        assert read[0].family == "control"
        check_promises(read)


def check_promises(read: list[Batch]) -> None:
    """No row lies below an earlier watermark, sequence numbers have no gap, and the last batch is final."""
    watermark, next_seq = 0, 0
    for batch in read[1:]:
        ((_, first, last, final),) = sources_of(batch)
        assert first == next_seq
        next_seq = last + 1
        if batch.count:
            assert batch.raw_ns().min() >= watermark
            assert (batch.column("stamp") == c.StampKind.KERNEL).all()
        watermark = int(batch.data["src_low_watermark_ns"][0])
        assert final == (batch is read[-1])
        assert batch.strings[batch.data["clk_id"][0]] == "here/CLOCK_REALTIME"
        assert batch.data["clk_timescale"][0] == c.Timescale.UTC


def test_noise_is_counted_and_the_rest_used(tmp_path: Path) -> None:
    logs, reports = run(tmp_path, 2, disturb=60)
    skipped = reports["n0"]["skipped"]
    assert skipped.pop("malformed datagram") >= 60
    # A full receive queue has no room for stamps either.
    skipped.pop("the receive queue was full", 0)
    unstamped = skipped.pop("a sent probe got no stamp", 0)
    assert skipped == {}
    assert reports["n1"]["skipped"] == {}
    everything = np.concatenate([table(read) for read in logs.values()])
    sent = set(everything["key"][everything["kind"] == c.ProbeKind.SEND].tolist())
    received = set(everything["key"][everything["kind"] == c.ProbeKind.RECEIVE].tolist())
    assert len(received - sent) <= unstamped


def test_a_node_that_dies_is_greeted_not_probed(tmp_path: Path) -> None:
    ports = local_peers(2)
    logs = {node: tmp_path / node for node in ports}
    processes = {node: start(logs[node], node, ports) for node in ports}
    deadline = time.monotonic() + 60
    while rows(batches(logs["n0"])) < PROBES:
        assert time.monotonic() < deadline
    processes["n1"].send_signal(signal.SIGTERM)
    processes["n1"].communicate(timeout=20)
    assert processes["n1"].returncode == 0
    before = rows(batches(logs["n0"]))
    heartbeats = len(batches(logs["n0"])) + 10
    while len(batches(logs["n0"])) < heartbeats:
        assert time.monotonic() < deadline
    assert rows(batches(logs["n0"])) - before < 20  # what was on its way
    processes["n1"] = start(logs["n1"], "n1", ports)  # and found again
    while rows(batches(logs["n0"])) < before + PROBES:
        assert time.monotonic() < deadline
    for process in processes.values():
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=20)
    sent, received = set(), set()
    for log in logs.values():
        rows_of = table(batches(log))
        sent |= set(rows_of["key"][rows_of["kind"] == c.ProbeKind.SEND].tolist())
        received |= set(rows_of["key"][rows_of["kind"] == c.ProbeKind.RECEIVE].tolist())
    assert sent == received
