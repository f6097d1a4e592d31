"""Jobs that keep their workers, as gangs of the book: they have their cells before any job, and no job takes them."""

from collections.abc import Mapping

from msgspec.structs import replace

from voda.domain.cells import GangAllocation
from voda.domain.job import Job
from voda.domain.state import ClusterState
from voda.planner.virtual_clusters.cell_draft import request_of
from voda.planner.virtual_clusters.plan_book import planned_job
from voda.planner.virtual_clusters.pool_jobs import cluster_of
from voda.planner.virtual_clusters.unused_book import unused_book


def with_fixed_gangs(view: ClusterState, fixed: Mapping[str, Job]) -> ClusterState:
    """Return the view in which each of these jobs is a gang, in the cells that the plan in force names."""
    if not fixed:
        return view
    assert view.cells is not None, "the pool has virtual clusters"
    book, gangs = unused_book(view.cells, view.nodes.values()), dict(view.gangs)
    for job_id, job in sorted(fixed.items()):
        plan = view.plan
        part = plan.placement[job_id], plan.devices.get(job_id, ()), plan.guaranteed.get(job_id, ())
        planned = planned_job(book, job.spec, part)
        known = zip(planned.workers, planned.gangs, strict=True)
        cells = tuple([worker.cells for worker, gang in known if gang is not None])
        request = request_of(
            f"job {job_id}",
            job.spec,
            cluster_of(book.quotas, job.spec),
            is_guaranteed=any(each.quota for each in cells),
            count=len(cells),
        )
        gangs[request.name] = GangAllocation(request=replace(request, yields=False), placement=cells)
    return replace(view, gangs=gangs)
