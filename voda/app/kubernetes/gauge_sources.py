"""What the gauges of a replica are read from.

Rule: read when somebody looks, in O(objects), and never kept.
"""

from collections.abc import Iterable, Mapping

from voda.application.read_model import ReadModel
from voda.application.registration.ports import SeenJob
from voda.application.submit_job import adoption_id
from voda.cluster.kubernetes.pools import KubernetesSite
from voda.cluster.kubernetes.reporting.status_annotations import REFUSED
from voda.cluster.kubernetes.resources import well_known
from voda.cluster.kubernetes.resources.objects import JobObject
from voda.cluster.kubernetes.state.job_annotations import foreign_manager, has_finished, is_invited
from voda.projections.job_registry import Roster
from voda.telemetry.kubernetes import Shown


def figures(site: KubernetesSite, view: ReadModel) -> Shown:
    """Return where the gauges of a replica are read."""
    return Shown(mirrored=site.mirrored, unadopted=lambda: unadopted(site.jobs(), view.roster))


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
