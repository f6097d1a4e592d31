"""Jobs that ask for a part of a card: which node has room for it, and which whole cards that takes from other jobs.

1. A job that has its share keeps it for as long as its node takes workers: no plan moves it, or takes it away.
2. The others come by priority, then submission. Each goes where voda/sharing's rater puts it: beside other shares, or
   on a whole card that no running job needs for its minimum, and no waiting job that comes before it.
3. Policies then decide on the cards that are left, so that elastic jobs shrink.

Rules: pure; the card is chosen anew, by the same rater, where the worker starts: only there it is known which cards the
workers of others hold. Pools with virtual clusters go another way (voda/planner/virtual_clusters/share_cards.py).
"""

from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from voda.domain.gpus import CardShare, GpuRequest, Gpus
from voda.domain.job import Job
from voda.domain.plan import Placement
from voda.domain.shares import PodShares, SharingNode
from voda.domain.state import ClusterState
from voda.events.event_text import request_text, shares_text
from voda.planner.feasibility import without_jobs

_CONTAINER: Final = "share"


class PlacedShares(Struct, frozen=True, kw_only=True):
    """Where the jobs go that ask for a part of a card, and why."""

    placement: Placement = {}
    reasons: Mapping[str, str] = {}


def place_shares(view: ClusterState) -> tuple[ClusterState, PlacedShares]:
    """Return the view that is left to jobs of whole GPUs, and where the others go."""
    jobs = {job_id: job for job_id, job in view.jobs.items() if job.spec.share is not None}
    if not jobs:
        return view, PlacedShares()
    draft = _ShareDraft(view)
    for job in _in_order(view):
        draft.add(job)
    left = replace(without_jobs(view, jobs.keys()), nodes=draft.nodes)
    return left, PlacedShares(placement=draft.placement, reasons=draft.reasons)


def card_text(shares: Mapping[str, SharingNode], job_id: str) -> str:
    """Return which part of which card a job has, `250 milli of card 0 of n1, beside ...`; empty: none."""
    for name, account in shares.items():
        if (pod := account.pods.get(job_id)) is not None:
            cards = {card for share in pod.containers.values() for card in share.cards}
            others = [
                f"{each.pod} ({shares_text(each.containers)})"
                for uid, each in account.pods.items()
                if uid != job_id and any(cards & set(share.cards) for share in each.containers.values())
            ]
            beside = f", beside {', '.join(others)}" if others else ""
            return f"{shares_text(pod.containers)} of {name}{beside}"
    return ""


class _ShareDraft:
    """The accounts as they become, the whole cards that may still be shared, and what follows for the jobs."""

    def __init__(self, view: ClusterState) -> None:
        self.placement: dict[str, tuple[str, ...]] = {}
        self.reasons: dict[str, str] = {}
        self.nodes = dict(view.nodes)
        self._view = view
        self._accounts = {name: account.copy() for name, account in view.shares.items() if _is_open(view, name)}
        self._spare = {name: _spare(view, name) for name in self._accounts}
        """Node -> whole cards that no running job needs for its minimum."""
        self._left = sum(_spare(view, name) for name in view.nodes)
        """Of the pool, less what jobs need that come before."""

    def add(self, job: Job) -> None:
        """Give a job its share, or, of one that waits for whole GPUs, note what it needs."""
        spec = job.spec
        if spec.share is None:
            need = spec.min_replicas * spec.gpus_per_replica
            self._left -= need if need <= self._left else 0
            return
        name = next((name for name, account in self._view.shares.items() if spec.job_id in account.pods), "")
        if name and (name in self._view.closed_nodes or _is_open(self._view, name)):
            self.placement[spec.job_id] = (name,)
            self.reasons[spec.job_id] = f"has {card_text(self._view.shares, spec.job_id)}"
        else:
            self._place(job, spec.share)

    def _place(self, job: Job, request: GpuRequest) -> None:
        # Only such jobs need numpy.
        from voda.sharing.accounts import choose_card

        accounts = {name: each for name, each in self._accounts.items() if name not in job.refusals}
        closed = {name: self._closed(name) for name in accounts}
        chosen = choose_card(accounts, request, closed=closed) if accounts else None
        if chosen is None:
            self.reasons[job.spec.job_id] = f"waits: needs {request_text(request)} of one card; {self._why_none()}"
            return
        name, card = chosen
        is_whole = self._accounts[name].free()[card].is_whole
        share = CardShare(cards=(card,), request=request)
        self._accounts[name].pods[job.spec.job_id] = PodShares(pod="", containers={_CONTAINER: share}, assigned_at=0.0)
        if is_whole:
            self._take_whole(name)
        self.placement[job.spec.job_id] = (name,)
        where = "a card that was whole" if is_whole else "a card that others share"
        self.reasons[job.spec.job_id] = f"gets {request_text(request)} of {where}, on {name}"

    def _take_whole(self, name: str) -> None:
        node = self.nodes[name]
        self.nodes[name] = replace(node, foreign_gpus=Gpus(min(node.gpus, node.foreign_gpus + 1)))
        self._spare[name] -= 1
        self._left -= 1

    def _closed(self, name: str) -> Sequence[int]:
        """Return the whole cards of a node, where none of them may be shared."""
        if self._spare[name] > 0 and self._left > 0:
            return ()
        return [card for card, left in enumerate(self._accounts[name].free()) if left.is_whole]

    def _why_none(self) -> str:
        if not self._accounts:
            return "no node has cards to share"
        shared = [left for each in self._accounts.values() for left in each.free() if not left.is_whole]
        most = max(shared, key=lambda left: (left.milli, left.memory_mib), default=None)
        beside = f"a shared one has at most {most.milli} milli and {max(0, most.memory_mib):,} MiB left" if most else ""
        whole = "" if any(self._spare.values()) and self._left > 0 else "other jobs need all whole ones"
        return ", and ".join(filter(None, (beside, whole))) or "no card is large enough"


def _in_order(view: ClusterState) -> Sequence[Job]:
    """Return the jobs with a part of a card, and those that wait for whole GPUs, in the order in which they come."""
    jobs = (job for job in view.jobs.values() if not job.is_canceling and (job.spec.share or not job.workers))
    return sorted(jobs, key=lambda job: (not job.workers, -job.spec.priority, job.submitted_at, job.spec.job_id))


def _spare(view: ClusterState, name: str) -> int:
    kept = sum(
        job.spec.gpus_per_replica
        for job in view.jobs.values()
        if not job.is_canceling
        for index, node in job.workers.items()
        if node == name and index < job.spec.min_replicas
    )
    return max(0, view.nodes[name].usable_gpus - kept)


def _is_open(view: ClusterState, name: str) -> bool:
    """Return whether new workers may come to a node."""
    node = view.nodes.get(name)
    takes = node is not None and node.is_ready and node.is_schedulable and not node.is_draining
    return takes and name not in view.closed_nodes
