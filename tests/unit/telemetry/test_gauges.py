"""Who leads, as gauges."""

from dataclasses import dataclass

from voda.telemetry.gauges import leadership_gauges
from voda.telemetry.prometheus import PrometheusTelemetry


@dataclass
class Candidate:
    """A leadership as it stands."""

    is_leading: bool
    epoch: int


def test_who_leads_is_told_as_it_is_at_each_look() -> None:
    telemetry, candidate = PrometheusTelemetry(), Candidate(is_leading=True, epoch=7)
    telemetry.read(lambda: leadership_gauges(candidate))
    registry = telemetry.registry
    assert [registry.get_sample_value(name) for name in ("voda_leader", "voda_leader_epoch")] == [1, 7]
    candidate.is_leading, candidate.epoch = False, 0
    assert [registry.get_sample_value(name) for name in ("voda_leader", "voda_leader_epoch")] == [0, 0]
