"""Virtual clusters, read from the log without any of voda's own projections.

Rules: no device is two workers'; the guaranteed workers of a virtual cluster are within its quota, type by type; a job
that its virtual cluster's healthy, unused cells would hold is in the plan, whatever others run; no guaranteed worker
gives way to another virtual cluster.

Only chains of one node are looked at: there, free GPUs are free cells, and nothing has to be packed.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from tests.dst.invariants.broken import Broken
from tests.dst.invariants.plans import Past, Plans
from voda.domain.cells import DEFAULT_VIRTUAL_CLUSTER, CellsSpec
from voda.domain.job import JobSpec
from voda.events.envelope import Event
from voda.events.types import (
    JobBackedOff,
    JobCancelRequested,
    JobChanged,
    PlanAdopted,
    SettingsChanged,
    VirtualClustersApplied,
    WorkerExited,
    WorkerRefused,
)


class _Cell(NamedTuple):
    node: str
    device: int


class _Worker(NamedTuple):
    job_id: str
    cluster: str
    quota: str
    """Type of the quota cell; empty: it has no guarantee."""


class Guarantees:
    """Reads the log as it grows, each append after `plans` has read it."""

    def __init__(self, plans: Plans) -> None:
        self._plans = plans
        self._cells: dict[str, Past[CellsSpec]] = {}
        """Pool -> what was applied."""
        self._quotas: dict[str, dict[str, tuple[str, ...]]] = {}
        """Pool -> job -> quota cells of its guaranteed workers, by the plan in force: their type, and a number."""
        self._devices: dict[str, dict[str, tuple[tuple[int, ...], ...]]] = {}
        self._used: dict[str, dict[_Cell, _Worker]] = {}
        """Pool -> cell -> its worker, by the plan in force."""
        self._exempt: set[str] = set()
        """Jobs that others may go before: they are being canceled, or somebody refused or failed them."""
        self._changed_at: dict[str, int] = {}
        """Pool -> position of the last change of what is owed and wished there."""
        self._based_on: dict[str, int] = {}
        """Pool -> position that its plan before was based on."""

    def see(self, events: Sequence[Event]) -> None:
        """Take in what was appended at once.

        Raises:
            Broken: a plan keeps a guarantee from somebody.
        """
        for event in events:
            match event.data:
                case VirtualClustersApplied(pool=pool, cells=cells):
                    self._cells.setdefault(pool, Past()).note(event.position, cells)
                    self._changed_at[pool] = event.position
                case SettingsChanged(pool=pool, settings=patch) if patch.keys() != {"ratelimit_s"}:
                    self._changed_at[pool] = event.position
                case JobChanged(job_id=job_id) if job_id in self._plans.specs:
                    self._changed_at[self._plans.specs[job_id].pool] = event.position
                case JobCancelRequested() | JobBackedOff() | WorkerRefused():
                    self._exempt.add(event.data.job_id)
                case WorkerExited(job_id=job_id, retry_at=float()):
                    self._exempt.add(job_id)
                case PlanAdopted():
                    self._adopt(event.data)

    def _adopt(self, plan: PlanAdopted) -> None:
        quotas, devices = self._quotas.setdefault(plan.pool, {}), self._devices.setdefault(plan.pool, {})
        for kept, changed in ((quotas, plan.guaranteed), (devices, plan.devices)):
            kept.update(changed)  # type: ignore[arg-type]
            for job_id in plan.released:
                kept.pop(job_id, None)
        before = self._used.get(plan.pool, {})
        past = self._cells.get(plan.pool)
        spec = past.at(plan.based_on) if past else None
        if spec is None or not spec.virtual_clusters:
            self._used.pop(plan.pool, None)
            return
        used = dict(self._workers(plan, spec))
        self._used[plan.pool] = used
        owed = _owed(spec)
        self._refuse_excess(plan, used, owed)
        for job_id in sorted(self._plans.specs.keys() - self._plans.placements[plan.pool].keys() - self._exempt):
            self._refuse_waiting(plan, spec, job_id, used, owed)
        based_on, self._based_on[plan.pool] = self._based_on.get(plan.pool, 0), plan.based_on
        if self._changed_at.get(plan.pool, 0) <= based_on:
            self._refuse_taken(plan, before, used)

    def _workers(self, plan: PlanAdopted, spec: CellsSpec) -> Iterator[tuple[_Cell, _Worker]]:
        seen: dict[_Cell, str] = {}
        for job_id, nodes in self._plans.placements[plan.pool].items():
            quotas = self._quotas[plan.pool].get(job_id, ())
            cluster = _cluster(self._plans.specs[job_id], spec)
            for index, (node, devices) in enumerate(zip(nodes, self._devices[plan.pool].get(job_id, ()), strict=False)):
                worker = _Worker(job_id, cluster, quotas[index].split("/")[0] if index < len(quotas) else "")
                for device in devices:
                    cell = _Cell(node, device)
                    if (other := seen.setdefault(cell, job_id)) != job_id:
                        what = f"plan {plan.number} gives device {device} of {node} to {other} and to {job_id}"
                        raise Broken("cells", what)
                    yield cell, worker

    def _refuse_excess(
        self, plan: PlanAdopted, used: Mapping[_Cell, _Worker], owed: Mapping[tuple[str, str, str], int]
    ) -> None:
        held = Counter((worker.cluster, cell.node, worker.quota) for cell, worker in used.items() if worker.quota)
        for (cluster, node, quota), gpus in held.items():
            if cluster != DEFAULT_VIRTUAL_CLUSTER and gpus > (most := owed.get((cluster, node, quota), 0)):
                what = f"plan {plan.number} guarantees {cluster} {gpus} GPUs of {node} in cells of type {quota}"
                raise Broken("cells", f"{what}, which has {most}")

    def _refuse_waiting(
        self,
        plan: PlanAdopted,
        spec: CellsSpec,
        job_id: str,
        used: Mapping[_Cell, _Worker],
        owed: Mapping[tuple[str, str, str], int],
    ) -> None:
        job = self._plans.spec_at(job_id, plan.based_on)
        if job is None or job.pool != plan.pool or job.priority < 0 or job.after or job.array is not None:
            return
        if self._plans.ends.get(job_id, plan.based_on + 1) <= plan.based_on:
            return
        cluster, need = _cluster(job, spec), max(job.min_replicas, job.requested) * job.gpus_per_replica
        mine = {
            key: gpus for key, gpus in owed.items() if key[0] == cluster and self._is_healthy(key[1], plan.based_on)
        }
        # Its other jobs have their share of the quota wherever they run, so it is only what they leave that is unused.
        unused = sum(mine.values()) - sum(worker.cluster == cluster for worker in used.values())
        for (_, node, quota), gpus in mine.items():
            free = gpus - sum(
                (each.cluster, each.quota, at.node) == (cluster, quota, node) for at, each in used.items()
            )
            # GPUs that are quota cells one by one hold no worker of several.
            is_whole = job.gpus_per_replica == 1 or quota != "gpu"
            if is_whole and min(free, unused) >= need:
                what = f"plan {plan.number} lets {job_id} wait, and {free} of {cluster}'s {gpus} GPUs of {node}"
                raise Broken("guarantee", f"{what} serve none of its jobs under the guarantee")

    def _is_healthy(self, name: str, position: int) -> bool:
        past = self._plans.nodes.get(name)
        node = past.at(position) if past else None
        return (
            node is not None
            and node.is_ready
            and node.is_schedulable
            and not node.is_draining
            and not node.foreign_gpus
        )

    def _refuse_taken(self, plan: PlanAdopted, before: Mapping[_Cell, _Worker], used: Mapping[_Cell, _Worker]) -> None:
        """Refuse a cell that was one virtual cluster's guarantee and is another's, while the first one got nothing."""
        had = Counter(worker.job_id for worker in before.values() if worker.quota)
        have = Counter(worker.job_id for worker in used.values() if worker.quota)
        gained = {worker.cluster for worker in used.values() if have[worker.job_id] > had[worker.job_id]}
        for cell, worker in before.items():
            now = used.get(cell)
            if not worker.quota or now is None or not now.quota or now.cluster == worker.cluster:
                continue
            is_over = self._plans.ends.get(worker.job_id, plan.based_on + 1) <= plan.based_on
            if is_over or worker.job_id in self._exempt or worker.cluster in gained:
                continue
            if have[worker.job_id] < had[worker.job_id]:
                what = f"plan {plan.number} takes device {cell.device} of {cell.node} from job {worker.job_id}"
                raise Broken("guarantee", f"{what} of {worker.cluster} for job {now.job_id} of {now.cluster}")


def _cluster(job: JobSpec, spec: CellsSpec) -> str:
    name = job.virtual_cluster or DEFAULT_VIRTUAL_CLUSTER
    return name if name in spec.virtual_clusters else DEFAULT_VIRTUAL_CLUSTER


def _owed(spec: CellsSpec) -> Mapping[tuple[str, str, str], int]:
    """Return (virtual cluster, node, type of its quota cells) -> GPUs, of chains that consist of one node."""
    nodes: dict[str, list[str]] = {}
    for cell in spec.physical_cluster.physical_cells:
        nodes.setdefault(cell.cell_type, []).append(str(cell.cell_address))
    owed: Counter[tuple[str, str, str]] = Counter()
    for name, cluster in spec.virtual_clusters.items():
        for quota in cluster.virtual_cells:
            chain, _, leaf = quota.cell_type.partition(".")
            if len(nodes[chain]) == 1:
                each = 1 if leaf else spec.physical_cluster.cell_types[chain].child_cell_number
                owed[name, nodes[chain][0], leaf or chain] += quota.cell_number * each
    return owed
