"""Who leads, as gauges."""

from voda.telemetry.gauges import leadership_gauges
from voda.telemetry.prometheus import PrometheusTelemetry


def test_who_leads_is_told_as_it_is_at_each_look() -> None:
    telemetry, epoch = PrometheusTelemetry(), 7
    telemetry.read(lambda: leadership_gauges(is_leading=epoch > 0, epoch=epoch))
    registry = telemetry.registry
    assert [registry.get_sample_value(name) for name in ("voda_leader", "voda_leader_epoch")] == [1, 7]
    epoch = 0
    assert [registry.get_sample_value(name) for name in ("voda_leader", "voda_leader_epoch")] == [0, 0]
