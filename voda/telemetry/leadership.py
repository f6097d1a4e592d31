"""Metrics of leadership, of each replica that campaigns.

Rule: the gauges are read when they are scraped.
"""

from collections.abc import Iterator
from typing import Protocol

from prometheus_client import Counter
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector, CollectorRegistry


class Candidate(Protocol):
    """A candidate, as far as metrics need it."""

    @property
    def is_leading(self) -> bool:
        """Whether it may act as the leader at this moment."""
        ...

    @property
    def epoch(self) -> int:
        """Of its leadership; 0 while it does not lead."""
        ...


class LeadershipMetrics:
    """Observes a leadership (see voda.app.leadership.LeadershipObserver)."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self._renewals_failed = Counter(
            "voda_lease_renewals_failed", "Renewals of the Lease that failed.", registry=registry
        )

    def renewed(self, *, succeeded: bool) -> None:
        """See LeadershipObserver."""
        if not succeeded:
            self._renewals_failed.inc()

    def show(self, leadership: Candidate) -> None:
        """Export who leads, read at each scrape."""
        self._registry.register(_Gauges(leadership))


class _Gauges(Collector):
    def __init__(self, leadership: Candidate) -> None:
        self._leadership = leadership

    def collect(self) -> Iterator[Metric]:
        """Yield the gauges."""
        leader, epoch = families = _families()
        leader.add_metric([], self._leadership.is_leading)
        epoch.add_metric([], self._leadership.epoch)
        yield from families

    def describe(self) -> Iterator[Metric]:
        """Describe the gauges without reading them."""
        yield from _families()


def _families() -> tuple[GaugeMetricFamily, GaugeMetricFamily]:
    return (
        GaugeMetricFamily("voda_leader", "1 while this replica leads, else 0.", labels=()),
        GaugeMetricFamily("voda_leader_epoch", "Epoch of this replica's leadership; 0 without.", labels=()),
    )
