"""What is counted of the work on a Kubernetes cluster."""

from prometheus_client import generate_latest

from voda.telemetry.kubernetes import GaugeSources, KubernetesMetrics


def value(metrics: KubernetesMetrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(f"voda_{name}", labels)


def test_requests_are_counted_by_verb_and_status_and_timed_by_verb() -> None:
    metrics = KubernetesMetrics()
    for code in (200, 200, 409, 0):
        metrics.asked("patch", code, 0.02)
    assert value(metrics, "kubernetes_requests_total", verb="patch", code="200") == 2
    assert value(metrics, "kubernetes_requests_total", verb="patch", code="409") == 1
    assert value(metrics, "kubernetes_requests_total", verb="patch", code="none") == 1
    assert value(metrics, "kubernetes_request_duration_seconds_count", verb="patch") == 4
    assert value(metrics, "kubernetes_request_duration_seconds_bucket", verb="patch", le="0.025") == 4


def test_drift_is_counted_and_a_relist_that_heals_nothing_sets_the_last_to_zero() -> None:
    metrics = KubernetesMetrics()
    metrics.drifted("pods", 3)
    assert value(metrics, "mirror_drift_objects", collection="pods") == 3
    metrics.drifted("pods", 0)
    assert value(metrics, "mirror_drift_objects", collection="pods") == 0
    assert value(metrics, "mirror_drift_total", collection="pods") == 3


def test_outcomes_that_never_came_are_shown_as_zero() -> None:
    metrics = KubernetesMetrics()
    assert value(metrics, "adoptions_total", outcome="refused") == 0
    for outcome in ("sent", "crowded", "overflowed", "late", "refused"):
        assert value(metrics, "announcements_total", outcome=outcome) == 0


def test_gauges_tell_what_is_at_each_look() -> None:
    metrics, objects = KubernetesMetrics(), {"pods": 1}
    metrics.show(GaugeSources(mirrored=lambda: objects, unadopted=lambda: {"waiting": 2, "refused": 0}))
    objects["pods"] = 5
    assert value(metrics, "mirrored_objects", collection="pods") == 5
    assert b'voda_objects_unadopted{state="waiting"} 2.0' in generate_latest(metrics.registry)
