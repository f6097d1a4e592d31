"""What idle cells gave to those who borrowed them, and what taking them back cost, folded from a log.

A reclaim is a plan that gives a guaranteed worker a device on which another job's worker had no guarantee. voda lets
that job checkpoint, and shrinks, moves or halts it: it loses one restart. By HiveD's rule the whole job is killed: it
loses the work since its last checkpoint and one start, on all its GPUs. Both are counted for the same reclaims.
"""

from collections.abc import Mapping

from msgspec import Struct
from msgspec.structs import replace

from voda.domain.gpus import Gpus
from voda.events import types as facts
from voda.events.envelope import Event
from voda.projections.base import Projection
from voda.simulator.training import CHECKPOINT_S
from voda.simulator.workload import Costs

_Cell = tuple[str, int]
"""Node, device."""


class _Borrower(Struct, kw_only=True):
    """A live job by the plan in force."""

    gpus_per_replica: Gpus
    nodes: tuple[str, ...] = ()
    devices: tuple[tuple[int, ...], ...] = ()
    guaranteed: int = 0
    """Workers, which are those of the lowest indices."""
    trains_since: float = 0.0
    """Since its last change or checkpoint at the end of an epoch."""

    @property
    def gpus(self) -> int:
        return len(self.nodes) * self.gpus_per_replica

    @property
    def borrowed_gpus(self) -> int:
        return (len(self.nodes) - self.guaranteed) * self.gpus_per_replica

    def cells(self) -> dict[_Cell, bool]:
        """Return cell -> whether it is guaranteed."""
        return {
            (node, device): index < self.guaranteed
            for index, (node, devices) in enumerate(zip(self.nodes, self.devices, strict=False))
            for device in devices
        }


class Lending(Projection):
    """See the module."""

    def __init__(self, costs: Mapping[str, Costs]) -> None:
        """`costs`: job -> what its changes cost."""
        self.borrowed_gpu_s = 0.0
        """Held without a guarantee."""
        self.reclaims = 0
        """Jobs from which something was taken, each time counted."""
        self.lost_gpu_s = 0.0
        self.lost_by_kill_gpu_s = 0.0
        self._costs = costs
        self._jobs: dict[str, _Borrower] = {}
        self._borrowed_gpus = 0
        self._counted_at = 0.0

    def _count_to(self, now: float) -> None:
        self.borrowed_gpu_s += self._borrowed_gpus * (now - self._counted_at)
        self._counted_at = now

    def _adopt(self, plan: facts.PlanAdopted, now: float) -> None:
        changed = {*plan.placed, *plan.released, *plan.guaranteed, *plan.devices} & self._jobs.keys()
        before = {job_id: replace(self._jobs[job_id]) for job_id in changed}
        for job_id in changed:
            self._change(job_id, plan, now)
        self._borrowed_gpus += sum(self._jobs[each].borrowed_gpus - before[each].borrowed_gpus for each in changed)
        for victim in self._victims(before):
            self._charge(victim, before[victim], now)

    def _change(self, job_id: str, plan: facts.PlanAdopted, now: float) -> None:
        job = self._jobs[job_id]
        nodes = () if job_id in plan.released else plan.placed.get(job_id, job.nodes)
        if nodes != job.nodes:
            costs = self._costs[job_id]
            job.trains_since = now + (costs.resize_s if job.nodes else costs.start_s)
        job.nodes = nodes
        job.devices = plan.devices.get(job_id, job.devices) if nodes else ()
        job.guaranteed = len(plan.guaranteed.get(job_id, ("",) * job.guaranteed)) if nodes else 0

    def _victims(self, before: Mapping[str, _Borrower]) -> set[str]:
        """Return the jobs of which guaranteed workers of others have idle cells now."""
        borrowers = {
            cell: job_id for job_id, job in before.items() for cell, is_kept in job.cells().items() if not is_kept
        }
        return {
            borrowers[cell]
            for job_id in before
            for cell, is_guaranteed in self._jobs[job_id].cells().items()
            if is_guaranteed and borrowers.get(cell, job_id) != job_id
        }

    def _charge(self, job_id: str, before: _Borrower, now: float) -> None:
        costs, after = self._costs[job_id], self._jobs[job_id]
        unsaved_s = max(0.0, now - before.trains_since) % CHECKPOINT_S
        self.reclaims += 1
        self.lost_gpu_s += after.gpus * costs.resize_s if after.nodes else before.gpus * costs.start_s
        self.lost_by_kill_gpu_s += before.gpus * (unsaved_s + costs.start_s)


@Lending.folds
def _submitted(lending: Lending, fact: facts.JobSubmitted, event: Event) -> None:
    lending._jobs[fact.spec.job_id] = _Borrower(gpus_per_replica=fact.spec.gpus_per_replica)


@Lending.folds
def _planned(lending: Lending, fact: facts.PlanAdopted, event: Event) -> None:
    lending._count_to(event.recorded_at)
    lending._adopt(fact, event.recorded_at)


@Lending.folds
def _progressed(lending: Lending, fact: facts.JobProgressed, event: Event) -> None:
    if (job := lending._jobs.get(fact.job_id)) is not None:
        job.trains_since = event.recorded_at


@Lending.folds
def _ended(lending: Lending, fact: facts.JobEnd, event: Event) -> None:
    if (job := lending._jobs.pop(fact.job_id, None)) is not None:
        lending._count_to(event.recorded_at)
        lending._borrowed_gpus -= job.borrowed_gpus
