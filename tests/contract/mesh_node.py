"""A mesh node in a process of its own, whose batches go to a file instead of Kafka.

Arguments: log file, node, its port, then peer=port for each peer. Stops at SIGTERM.
"""

import signal
import sys
import threading
from pathlib import Path

from producers.host import mesh
from schemas.batch import Batch
from schemas.codec import encode_batch
from schemas.pack import Head
from tempotrace.clockwork import WallClock, new_incarnation
from tests.fake_transports import FileTransport


def main(log: str, node: str, port: str, *peers: str) -> None:
    """Run until told to stop; then print the report."""
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    transport = FileTransport(Path(log))
    at = dict(text.split("=") for text in peers)
    options = mesh.Options(
        node, "here", ("127.0.0.1", int(port)), {name: ("127.0.0.1", int(p)) for name, p in at.items()}, 0.005
    )
    report = mesh.MeshReport()

    def emit(batch: Batch) -> None:
        transport.send("events", b"", encode_batch(batch), [], lambda error: None)

    running = mesh.Node(
        options, Head("default", "job", node, "probe"), new_incarnation(), WallClock(), report
    )
    running.run(emit, stop)
    running.close()
    sys.stdout.write(str({**report.fields(), "skipped": report.skipped}))


if __name__ == "__main__":
    main(*sys.argv[1:])
