"""What a running stage shows on loopback: /metrics for Prometheus, /healthz (the loop turns), /readyz.

The port is a free one, written to `<home>/stages/<tenant>-<stage>-<instance>.json` and removed at the end.
"""

import contextlib
import json
import logging
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from schemas.metrics import METRICS, Value, zeros
from tempotrace.clockwork import Clock
from tempotrace.runtime.meters import Histogram, Meters, no_observation

log = logging.getLogger(__name__)

HOST: Final = "127.0.0.1"
TURN_SECONDS_MAX: Final = 60.0  # a loop that takes longer for a turn is taken to be stuck


@dataclass(frozen=True)
class Probes:
    """What the server asks the stage for, from its own threads."""

    meters: Meters
    ready: Callable[[], bool]
    turned: Callable[[], float]  # monotonic seconds of the last turn of its loop
    lag: Callable[[], Mapping[tuple[str, ...], int]] = dict  # by (topic, partition)


class StageCollector(Collector):
    """The registry's metrics of one stage, as they stand at the scrape."""

    def __init__(self, names: Mapping[str, str], probes: Probes, clock: Clock) -> None:
        self._names = dict(names)
        self._probes = probes
        self._clock = clock
        self._begin = clock.monotonic()
        stage = names["stage"].split("-")[0]  # produce-gpu, produce-host, ...
        self._zeros = zeros(stage)
        self._histograms = [
            metric.name
            for metric in METRICS.values()
            if metric.kind == "histogram" and stage in metric.stages
        ]

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        counted = self._probes.meters.values()
        values = {**self._zeros, **counted}
        for name, none_yet in self._zeros.items():
            so_far = counted.get(name)
            if isinstance(none_yet, Mapping) and isinstance(so_far, Mapping):
                values[name] = {**none_yet, **so_far}
        values["uptime_seconds"] = self._clock.monotonic() - self._begin
        values["lag_records"] = {**self._probes.lag()}
        watermark = values.get("watermark_ns")
        if isinstance(watermark, int):
            values["watermark_age_seconds"] = (self._clock.now_ns_tai() - watermark) / 1e9
        for name, value in values.items():
            yield self._family(name, value)
        histograms = self._probes.meters.histograms()
        for name in self._histograms:
            histograms.setdefault(name, no_observation())
        for name, histogram in histograms.items():
            yield self._histogram(name, histogram)

    def _family(self, name: str, value: Value) -> Metric:
        metric = METRICS[name]
        labels = [*self._names, *metric.labels]
        make = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
        # The client adds _total to a counter's name itself.
        family = make(f"tempotrace_{name}", metric.meaning, labels=labels)
        table = value if isinstance(value, Mapping) else {(): value}
        for key, number in table.items():
            family.add_metric([*self._names.values(), *key], number)
        return family

    def _histogram(self, name: str, histogram: Histogram) -> Metric:
        metric = METRICS[name]
        family = HistogramMetricFamily(metric.exported, metric.meaning, labels=list(self._names))
        edges = [*(f"{edge:g}" for edge in histogram.edges), "+Inf"]
        buckets = list(zip(edges, histogram.cumulative, strict=True))
        family.add_metric(list(self._names.values()), buckets, histogram.total)
        return family


class HealthServer:
    """Serves until closed; a context manager."""

    def __init__(
        self, folder: Path, tenant: str, stage: str, instance: int, probes: Probes, clock: Clock
    ) -> None:
        registry = CollectorRegistry(auto_describe=False)
        names = {"tenant": tenant, "stage": stage, "instance": str(instance)}
        registry.register(StageCollector(names, probes, clock))
        self._server = ThreadingHTTPServer((HOST, 0), _handler(registry, probes, clock))
        self._server.daemon_threads = True
        self.port = int(self._server.server_address[1])
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.1,), name="health", daemon=True
        )
        self._file = folder / f"{tenant}-{stage}-{instance}.json"
        self._note = {**names, "instance": instance, "pid": os.getpid(), "port": self.port}

    def __enter__(self) -> Self:
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            self._file.write_text(json.dumps(self._note) + "\n")
        except OSError as error:
            # The note is for people and scrapers; the work may be what frees a full disk.
            log.warning(
                "the port %d of the health page is not in %s: %s", self.port, self._file, error.strerror
            )
            self._forget()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        self._forget()

    def _forget(self) -> None:
        with contextlib.suppress(OSError):  # a note that stays names a process that is gone
            self._file.unlink(missing_ok=True)


def _handler(registry: CollectorRegistry, probes: Probes, clock: Clock) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path == "/metrics":
                self._answer(200, CONTENT_TYPE_LATEST, generate_latest(registry))
            elif self.path == "/healthz":
                turning = clock.monotonic() - probes.turned() < TURN_SECONDS_MAX
                self._say(turning, "ok", "the loop does not turn")
            elif self.path == "/readyz":
                self._say(probes.ready(), "ready", "no partitions were assigned yet")
            else:
                self._answer(404, "text/plain", b"/metrics, /healthz, /readyz\n")

        def _say(self, good: bool, yes: str, no: str) -> None:
            self._answer(200 if good else 503, "text/plain", f"{yes if good else no}\n".encode())

        def _answer(self, code: int, kind: str, body: bytes) -> None:
            self.send_response(code)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Scrapes are not worth a log line."""

    return Handler
