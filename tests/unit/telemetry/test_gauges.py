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


def test_counters_and_histograms_have_no_series_of_when_they_were_made() -> None:
    shown = PrometheusTelemetry().exposition().decode()
    assert "_total" in shown
    assert "_bucket" in shown
    assert "_created" not in shown
