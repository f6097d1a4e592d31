"""The product with one of its guards taken away, to show that the search would find it missing.

Rule: nothing in the product knows of this; the guards are replaced from outside, for the length of a block.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from typing import Any, Final
from unittest.mock import patch

from msgspec.structs import replace

from voda.cells import scheduling
from voda.cells.book import CellBook
from voda.cells.decisions import Decision, GangWaits
from voda.cells.gangs import GangRequest
from voda.cells.scheduling import Conditions
from voda.cells.structure.quotas import Quotas
from voda.cluster.kubernetes.objects import Pod
from voda.cluster.port import Observed
from voda.domain.job import Job, JobSpec
from voda.domain.reasons.outcomes import Reason
from voda.domain.shares import GpuRemainder, SharingNode
from voda.domain.state import ClusterState
from voda.events.envelope import Head
from voda.log import append_plan
from voda.operator.sharing import annotated_shares
from voda.operator.sharing.share_corrections import StaleShare
from voda.planner import eligibility
from voda.planner.virtual_clusters import cell_draft, plan_book, pool_jobs
from voda.reconcilers import diff


def _unfenced(stream: str, head: Head, expected_version: int, epoch: int) -> None:
    """Take decisions whatever their epoch, and wherever their writer believes the stream to be."""
    if not stream.startswith("decisions."):
        _check_append(stream, head, expected_version, epoch)


_check_append: Final = append_plan.check_append
_seal_batch: Final = append_plan.seal_batch


def _forgetful(append: append_plan.Append, head: Head, *, position: int, recorded: Mapping[str, int]) -> Any:
    """Write every fact down, whether it is there or not."""
    del recorded
    return _seal_batch(append, head, position=position, recorded={})


def _as_if_all_were_free(observed: Observed, names: frozenset[str]) -> dict[str, int]:
    """Take every GPU for free, whoever holds it."""
    free = {name: node.usable_gpus for name, node in observed.nodes.items()}
    return {name: free.get(name, 0) for name in names}


_held_jobs: Final = eligibility.held_jobs


def _unbounded(view: ClusterState, tasks: Sequence[Job], held: Set[str], *, at_work: int) -> dict[str, Reason]:
    """Let all tasks of an array be at work at once."""
    del view, tasks, held, at_work
    return {}


def _impatient(view: ClusterState, now: float) -> dict[str, Reason]:
    """Let no job wait for the end of others."""
    return {job_id: why for job_id, why in _held_jobs(view, now).items() if not view.jobs[job_id].waits_for}


def _guarantees_nothing(quotas: Quotas, spec: JobSpec) -> None:
    """Treat every job as one without a guarantee."""
    del quotas, spec


def _takes_nothing_back(book: CellBook, request: GangRequest, gpus: int, conditions: Conditions) -> Decision:
    """Leave idle cells to whoever has borrowed them."""
    decision = _decide(book, request, gpus, conditions)
    return GangWaits(()) if getattr(decision, "victims", ()) else decision


_decide: Final = scheduling.decide


def _releases_nothing(node: str, account: SharingNode, pods: Mapping[str, Pod], now: float) -> Iterator[StaleShare]:
    """Let pods keep their shares for ever."""
    del node, account, pods, now
    return iter(())


def _forgets_memory(account: SharingNode) -> Sequence[GpuRemainder]:
    """Count what is left of compute alone."""
    left = zip(_free(account), account.devices, strict=True)
    return [replace(gpu, memory_mib=device.memory_mib) for gpu, device in left]


_free: Final = SharingNode.free


MUTATIONS: Final[Mapping[str, Sequence[tuple[object, str, Callable[..., Any]]]]] = {
    "fencing": [(append_plan, "check_append", _unfenced)],
    "idempotence": [(append_plan, "seal_batch", _forgetful)],
    "observed-free": [(diff, "_free", _as_if_all_were_free)],
    "array-bound": [(eligibility, "_beyond_bound", _unbounded)],
    "after": [(eligibility, "held_jobs", _impatient)],
    "guarantee": [(module, "quota_of", _guarantees_nothing) for module in (pool_jobs, cell_draft, plan_book)],
    "reclaim": [(cell_draft, "decide", _takes_nothing_back)],
    "release": [(annotated_shares, "stale_shares", _releases_nothing)],
    "gpu-memory": [(SharingNode, "free", _forgets_memory)],
}
"""Name -> what is replaced: module, name, replacement."""


@contextmanager
def without(guard: str) -> Iterator[None]:
    """Switch a guard off for the length of the block; an empty name switches nothing off.

    Raises:
        KeyError: there is no such guard.
    """
    replaced = [patch.object(*one) for one in MUTATIONS[guard]] if guard else []
    for patched in replaced:
        patched.start()
    try:
        yield
    finally:
        for patched in replaced:
            patched.stop()
