"""Shared GPUs as decisions see them: a job of one GPU stands in for those who share it.

A decision sees a stand-in for each GPU (`tenants` says which there are), and none of the jobs that share it; `answers`
gives each of them what the stand-in got. In a pool without virtual clusters, GPUs at work, or beside pods, have none:
they are settled, no plan takes them away, and for policies they are others'. In one with virtual clusters each is a
whole cell, and one with a guarantee on which a job runs gives way to nobody: its stand-in has the highest priority.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Set
from typing import Final, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from voda.domain.gpus import Gpus
from voda.domain.job import Job
from voda.domain.node import Node
from voda.domain.plan import Plan
from voda.domain.reasons.nodes import NodeRefusal, SmallGpus
from voda.domain.shares import SharingNode
from voda.domain.state import ClusterState, Estimate, linear_speedup
from voda.planner.candidates import Candidates
from voda.planner.sharing.tenants import SharedGpu, is_open, least_memory_mib, owner_of, shared_gpus

T = TypeVar("T")
_ABOVE_ALL: Final = 1 << 31
"""No user's job has this priority."""


class StandIns(Struct, frozen=True, kw_only=True):
    """The candidates of a decision, with stand-ins in place of the jobs that share GPUs."""

    candidates: Candidates
    gpus: Mapping[str, SharedGpu] = {}
    """By the id of the stand-in."""
    settled: Set[str] = frozenset()
    """Those of them without one: their jobs stay there, whatever is decided."""

    def by_job(self, answers: Mapping[str, T], *, owned: bool = False) -> dict[str, T]:
        """Return the answers, that for a stand-in given to each of its jobs, or to those of its owner alone."""
        spread: dict[str, T] = {}
        for name, answer in answers.items():
            gpu = self.gpus.get(name)
            jobs = [] if gpu is None else [job for job in gpu.jobs if not owned or owner_of(job) == gpu.owner]
            spread |= dict.fromkeys([name] if gpu is None else [job.spec.job_id for job in jobs], answer)
        return spread


def with_stand_ins(candidates: Candidates) -> StandIns:
    """Return the candidates as a decision sees them; the very same where no job has a part of a GPU."""
    view = candidates.view
    jobs = {job_id for job_id, job in view.special_jobs.items() if job.spec.share is not None}
    accounts = [account for account in view.shares.values() if account.pods]
    known = {*candidates.known, *view.jobs, *view.outlived} if accounts or jobs else set()
    # GPUs whose jobs are all about to leave are free for a plan at once.
    if not jobs and all(known.isdisjoint(account.pods) for account in accounts):
        return StandIns(candidates=candidates)
    sizes = least_memory_mib(view)
    every = {gpu.job_id: gpu for gpu in shared_gpus(view, sizes, known, candidates.last)}
    settled = {name for name, gpu in every.items() if _is_settled(view, gpu)}
    gpus = {name: gpu for name, gpu in every.items() if name not in settled}
    too_small = _too_small(sizes, gpus.values())
    others = {job_id: job for job_id, job in view.jobs.items() if job_id not in jobs}
    shown = replace(
        view,
        jobs=others | {name: _stand_in(view, gpu, too_small) for name, gpu in gpus.items()},
        nodes=_nodes(view, every, settled, known),
        plan=_plan(view.plan, jobs, gpus),
        estimates={**view.estimates, **{name: _estimate(view, gpu) for name, gpu in gpus.items()}},
    )
    last = {name for name, gpu in gpus.items() if all(job.spec.job_id in candidates.last for job in gpu.jobs)}
    at_work = frozenset(name for name, gpu in gpus.items() if gpu.is_at_work)
    found = replace(candidates, view=shown, last=candidates.last | last, steady=at_work)
    return StandIns(candidates=found, gpus=every, settled=settled)


def _is_settled(view: ClusterState, gpu: SharedGpu) -> bool:
    # What pods leave of a GPU is nobody's whole GPU.
    stays = view.cells is None and (gpu.is_at_work or gpu.is_beside_others)
    return stays and (gpu.node in view.closed_nodes or is_open(view, gpu.node))


def _stand_in(view: ClusterState, gpu: SharedGpu, too_small: Mapping[int, Mapping[str, NodeRefusal]]) -> Job:
    """Return the job of one GPU in place of those who share it."""
    first = gpu.jobs[0]
    is_sure = gpu.is_at_work and any(job.spec.job_id in view.plan.guaranteed for job in gpu.jobs)
    own = [job for job in gpu.jobs if view.cells is None or owner_of(job)[0] == gpu.owner[0]]
    spec = replace(
        first.spec,
        job_id=gpu.job_id,
        share=None,
        gpus_per_replica=Gpus(1),
        priority=_ABOVE_ALL if is_sure and gpu.owner[1] else max(job.spec.priority for job in own),
        array=None,
    )
    refusals = {node: why for job in gpu.jobs for node, why in job.refusals.items() if job.is_refused_by(node, 1)}
    return replace(
        first,
        spec=spec,
        submitted_at=min(job.submitted_at for job in gpu.jobs),
        workers={0: gpu.node} if gpu.is_at_work else {},
        refusals={**_without(too_small[gpu.needed_mib], gpu.node), **refusals},
        fits={},
    )


def _too_small(sizes: Mapping[str, int], gpus: Collection[SharedGpu]) -> Mapping[int, Mapping[str, NodeRefusal]]:
    """Return MiB that jobs of a GPU need -> the nodes whose GPUs have less, and why."""
    return {
        needed: {
            name: SmallGpus(memory_mib=None if size < 0 else size) for name, size in sizes.items() if size < needed
        }
        for needed in {gpu.needed_mib for gpu in gpus}
    }


def _without(refusals: Mapping[str, NodeRefusal], node: str) -> Mapping[str, NodeRefusal]:
    return {name: why for name, why in refusals.items() if name != node} if node in refusals else refusals


def _nodes(view: ClusterState, gpus: Mapping[str, SharedGpu], settled: Set[str], known: Set[str]) -> Mapping[str, Node]:
    """Return the nodes: of the GPUs of which jobs have parts, settled ones are others', and no more of them.

    Closed nodes have room for the stand-ins at work there.
    """
    nodes, numbers = dict(view.nodes), defaultdict[str, set[int]](set)
    for gpu in gpus.values():
        if gpu.number is not None:
            numbers[gpu.node].add(gpu.number)
    own = {name: _own_gpus(account, known, numbers[name]) for name, account in view.shares.items() if account.pods}
    kept = Counter(gpus[name].node for name in settled)
    for name in (own.keys() | kept.keys()) & nodes.keys():
        if name not in view.closed_nodes and (more := kept[name] - own.get(name, 0)):
            nodes[name] = replace(nodes[name], foreign_gpus=Gpus(max(0, nodes[name].foreign_gpus + more)))
    at_work = Counter(gpu.node for name, gpu in gpus.items() if gpu.is_at_work and name not in settled)
    for name in at_work.keys() & view.closed_nodes.keys():
        nodes[name] = replace(nodes[name], gpus=nodes[name].gpus + at_work[name])
    return nodes


def _own_gpus(account: SharingNode, known: Set[str], planned: Set[int]) -> int:
    """Return how many GPUs of a node are the jobs': those that plans have, and those of which jobs alone have parts."""
    jobs = known & account.pods.keys()
    others = account.gpus_of(account.pods.keys() - jobs)
    return sum(gpu < len(account.devices) for gpu in (account.gpus_of(jobs) - others) | planned)


def _plan(plan: Plan, jobs: Set[str], gpus: Mapping[str, SharedGpu]) -> Plan:
    """Return the plan in force, with stand-ins in place of these jobs."""
    placement, devices, guaranteed = (
        {job_id: each for job_id, each in of_jobs.items() if job_id not in jobs}
        for of_jobs in (plan.placement, plan.devices, plan.guaranteed)
    )
    for name, gpu in gpus.items():
        ids = [job.spec.job_id for job in gpu.jobs]
        if gpu.node:
            placement[name] = (gpu.node,)
            devices[name] = next((plan.devices[job_id] for job_id in ids if job_id in plan.devices), ())
        if quotas := next((plan.guaranteed[job_id] for job_id in ids if job_id in plan.guaranteed), ()):
            guaranteed[name] = quotas
    return replace(plan, placement=placement, devices=devices, guaranteed=guaranteed)


def _estimate(view: ClusterState, gpu: SharedGpu) -> Estimate:
    """Return what is lost when all its jobs leave a GPU at once, and how long the last of them needs it."""
    known = [view.estimates.get(job.spec.job_id) for job in gpu.jobs]
    return Estimate(
        speedup=linear_speedup(1),
        remaining_s=max(math.inf if each is None else each.remaining_s for each in known),
        resize_cost_s=sum(view.settings.resize_cost_s if each is None else each.resize_cost_s for each in known),
    )
