"""Shows the metrics of voda/metrics.py to Prometheus: makes their instruments, feeds them, and writes them down.

Rule: a metric is known here by its declaration alone, so that a new one needs no line here.
"""

import platform
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Any, Final

import prometheus_client as prometheus
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from voda import __version__
from voda.metrics import ALL, BUILD_INFO, Counter, Gauge, Histogram, Metric, Scope, Telemetry

CONTENT_TYPE: Final = prometheus.CONTENT_TYPE_PLAIN_0_0_4
# A series more for every counter and histogram, which says nothing that anybody asks.
prometheus.disable_created_metrics()  # type: ignore[no-untyped-call]
ReadGauges = Callable[[], Iterable[Family]]
"""Returns gauges as they stand at this moment."""


class PrometheusTelemetry(Telemetry):
    """The metrics of one service, in a registry of its own; those of its scopes are shown before they are fed."""

    def __init__(self, *scopes: Scope) -> None:
        self.registry = prometheus.CollectorRegistry()
        # Looked up at every measurement.
        self._instrument = cache(self._new_instrument)
        self._child = cache(self._new_child)
        self.show("service", *scopes)
        self.set(BUILD_INFO, 1, __version__, platform.python_version())
        prometheus.ProcessCollector(registry=self.registry)
        prometheus.GCCollector(registry=self.registry)

    def count(self, counter: Counter, *labels: str, by: float = 1) -> None:
        self._child(counter, labels).inc(by)

    def observe(self, histogram: Histogram, seconds: float, *labels: str) -> None:
        self._child(histogram, labels).observe(seconds)

    def set(self, gauge: Gauge, value: float, *labels: str) -> None:
        self._child(gauge, labels).set(value)

    def show(self, *scopes: Scope) -> None:
        """Have the metrics of some scopes shown, fed or not."""
        for metric in ALL:
            if metric.scope in scopes:
                self._instrument(metric)
                for labels in metric.shown:
                    self._child(metric, labels)

    def read(self, gauges: ReadGauges) -> None:
        """Have gauges read at each look."""
        self.registry.register(_Reader(gauges))

    def exposition(self) -> bytes:
        """Return all metrics in the text format of Prometheus."""
        return prometheus.generate_latest(self.registry)

    def _new_child(self, metric: Metric, labels: tuple[str, ...]) -> Any:
        instrument = self._instrument(metric)
        return instrument.labels(*labels) if labels else instrument

    def _new_instrument(self, metric: Metric) -> Any:
        kinds = {Counter: prometheus.Counter, Gauge: prometheus.Gauge, Histogram: prometheus.Histogram}
        options = {"buckets": metric.buckets} if isinstance(metric, Histogram) else {}
        name = f"voda_{metric.name}"
        return kinds[type(metric)](name, metric.meaning, metric.labels, registry=self.registry, **options)


class _Reader(Collector):
    def __init__(self, gauges: ReadGauges) -> None:
        self._gauges = gauges

    def collect(self) -> Iterator[Family]:
        yield from self._gauges()

    def describe(self) -> Iterator[Family]:
        """Name none of them, so that nothing is read before the first look."""
        yield from ()
