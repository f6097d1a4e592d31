"""The gauges of a replica on Kubernetes: objects mirrored, and objects labelled for voda that are no jobs of its.

Rule: read when somebody looks, in O(objects), and never kept.
"""

from collections.abc import Iterable, Iterator, Mapping

from prometheus_client.core import GaugeMetricFamily

from voda.application.read_model import ReadModel
from voda.application.registration.ports import SeenJob
from voda.application.submit_job import adoption_id
from voda.cluster.kubernetes.pools import KubernetesSite
from voda.cluster.kubernetes.reporting.status_annotations import REFUSED
from voda.cluster.kubernetes.resources import well_known
from voda.cluster.kubernetes.resources.objects import JobObject
from voda.cluster.kubernetes.state.job_annotations import foreign_manager, has_finished, is_invited
from voda.projections.job_registry import Roster


def kubernetes_gauges(site: KubernetesSite, view: ReadModel) -> Iterator[GaugeMetricFamily]:
    """Yield the gauges as they stand."""
    yield _gauge("mirrored_objects", "Objects mirrored here.", "collection", site.mirrored())
    counts = unadopted(site.jobs(), view.roster)
    yield _gauge("objects_unadopted", "Labelled objects that are no jobs of voda's.", "state", counts)


def unadopted(objects: Iterable[SeenJob], roster: Roster) -> Mapping[str, int]:
    """Return how many objects are labelled for voda and no jobs of its: waiting, or refused."""
    counts = {"waiting": 0, "refused": 0}
    for _, job in objects:
        if _is_asked_for(job) and not _is_known(job, roster):
            is_refused = job.metadata.annotations.get(well_known.STATE) == REFUSED
            counts["refused" if is_refused else "waiting"] += 1
    return counts


def _is_asked_for(job: JobObject) -> bool:
    meta = job.metadata
    return is_invited(meta) and meta.deletion_timestamp is None and not has_finished(job) and not foreign_manager(job)


def _is_known(job: JobObject, roster: Roster) -> bool:
    meta = job.metadata
    if roster.submission(adoption_id(meta.uid)) is not None:
        return True
    record = roster.job(meta.annotations.get(well_known.JOB_ID, ""))
    return record is not None and record.job.uid == meta.uid


def _gauge(name: str, meaning: str, label: str, values: Mapping[str, int]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(f"voda_{name}", meaning, labels=(label,))
    for value, count in values.items():
        family.add_metric([value], count)
    return family
