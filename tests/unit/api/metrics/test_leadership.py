"""Who leads, as metrics."""

from dataclasses import dataclass

from prometheus_client import CollectorRegistry

from voda.telemetry.leadership import LeadershipMetrics


@dataclass
class Candidate:
    """A leadership as it stands."""

    is_leading: bool
    epoch: int


def test_renewals_are_counted_where_they_fail() -> None:
    registry = CollectorRegistry()
    metrics = LeadershipMetrics(registry)
    metrics.renewed(succeeded=True)
    metrics.renewed(succeeded=False)
    assert registry.get_sample_value("voda_lease_renewals_failed_total") == 1


def test_who_leads_is_told_as_it_is_at_each_look() -> None:
    registry, candidate = CollectorRegistry(), Candidate(is_leading=True, epoch=7)
    LeadershipMetrics(registry).show(candidate)
    assert [registry.get_sample_value(name) for name in ("voda_leader", "voda_leader_epoch")] == [1, 7]
    candidate.is_leading, candidate.epoch = False, 0
    assert [registry.get_sample_value(name) for name in ("voda_leader", "voda_leader_epoch")] == [0, 0]
