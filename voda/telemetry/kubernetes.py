"""What is counted of the work on a Kubernetes cluster.

Rules: fed as things happen, and only by the replica that does them; what there is at the moment of a look is read
then, and nothing is kept from one look to the next.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Final

from msgspec import Struct
from prometheus_client import Gauge
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from voda.telemetry.instruments import Metrics
from voda.telemetry.leadership import LeadershipMetrics

_REQUESTS_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0)
"""What a request to an API server takes; after 15 s it is given up."""
_UNSENT: Final = ("crowded", "overflowed", "late", "refused")


class KubernetesMetrics(Metrics):
    """All that is counted and timed of a service on Kubernetes.

    It observes requests, mirrors, bindings, adoption and announcements; `leadership` observes that.
    """

    def __init__(self) -> None:
        super().__init__()
        self._requests = self._counter(
            "kubernetes_requests", "Requests to the API server, by HTTP status; none: no answer came.", "verb", "code"
        )
        self._request = self._histogram(
            "kubernetes_request_duration_seconds",
            "Requests to the API server until the answer began.",
            _REQUESTS_S,
            "verb",
        )
        self._drift = self._counter(
            "mirror_drift", "Objects that a watch missed and a periodic relist healed.", "collection"
        )
        self._last_drift = Gauge(
            "voda_mirror_drift_objects", "Objects that the last relist healed.", ["collection"], registry=self.registry
        )
        self._bound = self._counter("pods_bound", "Worker pods given their nodes.")
        self._binding = self._histogram(
            "bind_duration_seconds", "Binding workers of a job that were due together, all requests of it.", _REQUESTS_S
        )
        self._refusals = self._counter("worker_refusals", "Planned nodes that could not take workers of a job.")
        self._pokes = self._counter("launcher_pokes", "Launchers made to look at their hosts.")
        self._adoptions = self._counter("adoptions", "Labelled objects taken in or refused.", "outcome")
        self._announced = self._counter("announcements", "Kubernetes Events, by what became of them.", "outcome")
        self.leadership = LeadershipMetrics(self.registry)
        # Shown as 0 from the beginning, so that an alert sees the first one.
        for outcome in ("adopted", "refused"):
            self._adoptions.labels(outcome)
        for outcome in ("sent", *_UNSENT):
            self._announced.labels(outcome)
        self._requested = cache(self._requests.labels)
        self._took = cache(self._request.labels)

    def asked(self, verb: str, code: int, seconds: float) -> None:
        """Take note of a request to the API server; see Api."""
        self._requested(verb, str(code) if code else "none").inc()
        self._took(verb).observe(seconds)

    def drifted(self, collection: str, objects: int) -> None:
        """See Observer of the cluster."""
        self._drift.labels(collection).inc(objects)
        self._last_drift.labels(collection).set(objects)

    def bound(self) -> None:
        """See Observer of the cluster."""
        self._bound.inc()

    def binding_took(self, seconds: float) -> None:
        """See Observer of the cluster."""
        self._binding.observe(seconds)

    def refused(self) -> None:
        """See Observer of the cluster."""
        self._refusals.inc()

    def launcher_refreshed(self) -> None:
        """See Observer of the cluster."""
        self._pokes.inc()

    def adopted(self, outcome: str) -> None:
        """Take note of an object that was adopted or refused; see Adoption."""
        self._adoptions.labels(outcome).inc()

    def announced(self, outcome: str) -> None:
        """Take note of what became of an announcement; see Announcer."""
        self._announced.labels(outcome).inc()

    def show(self, shown: "GaugeSources") -> None:
        """Have what there is read at each look."""
        self.registry.register(KubernetesGauges(shown))


class GaugeSources(Struct, frozen=True, kw_only=True):
    """Where the gauges are read."""

    mirrored: Callable[[], Mapping[str, int]]
    """Collection -> objects."""
    unadopted: Callable[[], Mapping[str, int]]
    """State -> labelled objects that are no jobs."""


class KubernetesGauges(Collector):
    """Reads the gauges."""

    def __init__(self, shown: GaugeSources) -> None:
        self._shown = shown

    def collect(self) -> Iterator[Metric]:
        """Yield all gauges."""
        shown = self._shown
        mirrored, unadopted = families = _families()
        for collection, objects in shown.mirrored().items():
            mirrored.add_metric([collection], objects)
        for state, objects in shown.unadopted().items():
            unadopted.add_metric([state], objects)
        yield from families

    def describe(self) -> Iterator[Metric]:
        """Name the gauges without a look at anything."""
        yield from _families()


def _families() -> tuple[GaugeMetricFamily, ...]:
    return (
        GaugeMetricFamily("voda_mirrored_objects", "Objects mirrored here.", labels=("collection",)),
        GaugeMetricFamily("voda_objects_unadopted", "Labelled objects that are no jobs of voda's.", labels=("state",)),
    )
