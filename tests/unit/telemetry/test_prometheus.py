"""What is measured through the port is shown to Prometheus under the declared names."""

import pytest

from voda import metrics
from voda.metrics import ALL
from voda.telemetry.prometheus import PrometheusTelemetry


def value(telemetry: PrometheusTelemetry, name: str, **labels: str) -> float | None:
    found: float | None = telemetry.registry.get_sample_value(f"voda_{name}", labels)
    return found


def test_counter_adds_up_by_its_labels() -> None:
    telemetry = PrometheusTelemetry()
    for code in ("200", "200", "409"):
        telemetry.count(metrics.KUBERNETES_REQUESTS, "patch", code)
    assert value(telemetry, "kubernetes_requests_total", verb="patch", code="200") == 2
    assert value(telemetry, "kubernetes_requests_total", verb="patch", code="409") == 1


def test_histogram_has_the_buckets_that_are_declared() -> None:
    telemetry = PrometheusTelemetry()
    telemetry.observe(metrics.KUBERNETES_REQUEST_DURATION, 0.02, "patch")
    assert value(telemetry, "kubernetes_request_duration_seconds_count", verb="patch") == 1
    assert value(telemetry, "kubernetes_request_duration_seconds_bucket", verb="patch", le="0.025") == 1
    assert value(telemetry, "kubernetes_request_duration_seconds_bucket", verb="patch", le="0.01") == 0


def test_gauge_shows_what_it_was_set_to_last() -> None:
    telemetry = PrometheusTelemetry()
    for objects in (3, 0):
        telemetry.set(metrics.LAST_MIRROR_DRIFT, objects, "pods")
    assert value(telemetry, "mirror_drift_objects", collection="pods") == 0


def test_outcomes_that_never_came_are_shown_as_zero() -> None:
    telemetry = PrometheusTelemetry("kubernetes")
    assert value(telemetry, "adoptions_total", outcome="refused") == 0
    for outcome in ("sent", "crowded", "overflowed", "late", "refused"):
        assert value(telemetry, "announcements_total", outcome=outcome) == 0
    for outcome in ("ok", "unavailable", "not_writable"):
        assert value(telemetry, "append_duration_seconds_count", outcome=outcome) == 0


def test_metrics_of_another_scope_are_shown_once_they_are_asked_for() -> None:
    telemetry = PrometheusTelemetry()
    assert b"voda_lease_renewals_failed" not in telemetry.exposition()
    telemetry.show("election")
    assert value(telemetry, "lease_renewals_failed_total") == 0


@pytest.mark.parametrize("metric", ALL, ids=lambda metric: str(metric.name))
def test_every_metric_can_be_shown(metric: metrics.Metric) -> None:
    telemetry = PrometheusTelemetry("election", "kubernetes")
    assert f"# HELP voda_{metric.name}" in telemetry.exposition().decode()
    assert all(len(labels) == len(metric.labels) for labels in metric.shown)
