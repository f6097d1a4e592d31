"""The gauges of a replica on Kubernetes, read when somebody looks: objects mirrored, and objects that are no jobs."""

from collections.abc import Iterator, Mapping

from prometheus_client.core import GaugeMetricFamily


def kubernetes_gauges(mirrored: Mapping[str, int], unadopted: Mapping[str, int]) -> Iterator[GaugeMetricFamily]:
    """Yield the gauges as they stand.

    Args:
        mirrored: collection -> objects.
        unadopted: state -> labelled objects that are no jobs.
    """
    yield _gauge("mirrored_objects", "Objects mirrored here.", "collection", mirrored)
    yield _gauge("objects_unadopted", "Labelled objects that are no jobs of voda's.", "state", unadopted)


def _gauge(name: str, meaning: str, label: str, values: Mapping[str, int]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(f"voda_{name}", meaning, labels=(label,))
    for value, count in values.items():
        family.add_metric([value], count)
    return family
