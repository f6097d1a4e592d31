"""What is lost when workers leave idle cells that a guarantee needs (voda/cells/search/losses.py)."""

from collections.abc import Iterator, Mapping

from voda.cells.search.losses import GangLoss, ReclaimStep
from voda.domain.state import ClusterState
from voda.planner.virtual_clusters.cell_draft import CellDraft, PlannedWorker


class WorkerLosses(Mapping[str, GangLoss]):
    """Worker -> what its job loses with it, worked out when it is asked for: most are never asked for."""

    def __init__(self, draft: CellDraft, guaranteed: Mapping[str, int]) -> None:
        """`guaranteed`: job -> workers that its virtual cluster has cells for, be they there already or not."""
        self._draft = draft
        self._guaranteed = guaranteed

    def __getitem__(self, name: str) -> GangLoss:
        worker = self._draft.worker(name)
        view, job_id = self._draft.view, worker.job_id
        lost_gpu_s = restart_gpu_s(view, job_id, self._draft.size(job_id))
        return GangLoss(self._step(worker), lost_gpu_s, view.jobs[job_id].submitted_at)

    def __iter__(self) -> Iterator[str]:
        return (worker.name for workers in self._draft.workers.values() for worker in workers)

    def __len__(self) -> int:
        return sum(map(len, self._draft.workers.values()))

    def _step(self, worker: PlannedWorker) -> ReclaimStep:
        spec = self._draft.view.jobs[worker.job_id].spec
        # One that is in its virtual cluster's guarantee gets cells there in its place.
        is_surplus = worker.index >= max(spec.min_replicas, self._guaranteed.get(worker.job_id, 0))
        if is_surplus and self._guaranteed.get(worker.job_id, 0) >= spec.min_replicas:
            return ReclaimStep.SHRINK
        return ReclaimStep.MINIMUM if worker.index >= spec.min_replicas else ReclaimStep.HALT


def restart_gpu_s(view: ClusterState, job_id: str, workers: int) -> float:
    """Return what one restart of a job with so many workers loses, with the work since its last checkpoint."""
    estimate = view.estimates.get(job_id)
    cost_s = estimate.resize_cost_s if estimate is not None else view.settings.resize_cost_s
    return cost_s * workers * view.jobs[job_id].spec.gpus_per_replica
