"""What a decision gives to shared GPUs, as the answer for each of the jobs that share them.

Rules: all jobs of a GPU have its node and what the plan calls it, those of its owner its guarantee; each has one
reason. In a pool without virtual clusters, a plan numbers the GPUs of a node that jobs share, whichever they are there.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from heapq import nlargest
from itertools import chain, count

from msgspec.structs import replace

from voda.domain.gpus import NO_GPUS
from voda.domain.job import Job
from voda.domain.plan import Devices
from voda.domain.reasons.cells import MostLeft, NeedsPart
from voda.domain.reasons.outcomes import Cause, GetsPart, Reason, Waits
from voda.domain.state import ClusterState
from voda.planner.candidates import Placed
from voda.planner.sharing.parts import GpuParts
from voda.planner.sharing.stand_ins import StandIns
from voda.planner.sharing.tenants import SharedGpu, request_of


def with_answers(view: ClusterState, shares: StandIns, placed: Placed) -> Placed:
    """Return a decision on the jobs themselves; `view` is the one from which `shares` was made."""
    if not shares.gpus:
        return placed
    settled = {name: (shares.gpus[name].node,) for name in shares.settled}
    placed = replace(placed, placement={**placed.placement, **settled})
    reasons = {**shares.by_job(placed.reasons), **_reasons(view, shares, placed)}
    return Placed(
        placement=shares.by_job(placed.placement),
        guaranteed=shares.by_job(placed.guaranteed, owned=True),
        devices=shares.by_job(_numbers(shares, placed) if view.cells is None else placed.devices),
        reasons=reasons,
        left_out={job_id: reasons[job_id] for job_id in shares.by_job(placed.left_out)},
    )


def _numbers(shares: StandIns, placed: Placed) -> Devices:
    """Return what the plan calls each shared GPU: as before where it stays, another number where that is taken."""
    taken, found = set[tuple[str, tuple[tuple[int, ...], ...]]](), dict[str, tuple[tuple[int, ...], ...]]()
    # Those that have a number on their node keep it.
    for name in sorted(shares.gpus.keys() & placed.placement.keys(), key=lambda name: not shares.gpus[name].devices):
        (node,), gpu = placed.placement[name], shares.gpus[name]
        former = [gpu.devices] if gpu.devices and gpu.node == node else []
        free = (((number,),) for number in count())
        found[name] = next(each for each in chain(former, free) if (node, each) not in taken)
        taken.add((node, found[name]))
    return found


def _reasons(view: ClusterState, shares: StandIns, placed: Placed) -> Mapping[str, Reason]:
    """Return why each job has its part, or none."""
    found, parts, emptiest = dict[str, Reason](), GpuParts(view.shares), _emptiest(shares.gpus.values())
    for name, gpu in shares.gpus.items():
        nodes, reason = placed.placement.get(name), placed.reasons.get(name, Waits())
        # One of two at most is its own.
        others = [each for each in emptiest.get(gpu.owner, ()) if each is not gpu]
        for job in gpu.jobs:
            found[job.spec.job_id] = (
                _why(job, nodes[0], reason, gpu, parts) if nodes else _why_none(job, reason, others)
            )
    return found


def _why(job: Job, node: str, reason: Reason, gpu: SharedGpu, parts: GpuParts) -> Reason:
    if job.workers and (has := parts.of(node, job.spec.job_id, *reason.why)):
        return has
    return GetsPart(request=request_of(job), node=node, is_whole=len(gpu.jobs) == 1, why=reason.why)


def _why_none(job: Job, reason: Reason, emptiest: Sequence[SharedGpu]) -> Reason:
    """Return what a job lacks: room on the other GPUs of its owner, and a GPU for one more."""
    free = reason.free if isinstance(reason, Waits) and reason.needs else None
    lacks: list[Cause] = [NeedsPart(request=request_of(job), free=free)]
    if emptiest:
        left, (cluster, *_) = emptiest[0].left, emptiest[0].owner
        lacks.append(MostLeft(virtual_cluster=cluster, milli=left.milli, memory_mib=left.memory_mib))
    if isinstance(reason, Waits):
        reason = replace(reason, needs=NO_GPUS, free=NO_GPUS)
    return replace(reason, why=(*lacks, *reason.why))


def _emptiest(gpus: Iterable[SharedGpu]) -> Mapping[object, Sequence[SharedGpu]]:
    """Return the two GPUs of each owner of which most is left, of those that have a node."""
    by_owner = defaultdict[object, list[SharedGpu]](list)
    for gpu in gpus:
        if gpu.node:
            by_owner[gpu.owner].append(gpu)
    return {owner: nlargest(2, each, key=_most_left) for owner, each in by_owner.items()}


def _most_left(gpu: SharedGpu) -> tuple[int, int]:
    return gpu.left.milli, gpu.left.memory_mib
