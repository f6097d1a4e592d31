"""Jobs that ask for a part of a card: which node has room for it, and which whole cards that takes from other jobs.

1. A job that has its share keeps it for as long as its node takes workers: no plan takes it away.
2. The others come by priority, then submission. Each goes where voda/sharing's rater puts it: beside other shares, or
   on a whole card that no running job needs for its minimum, and no waiting job that comes before it.
3. Policies then decide on the cards that are left, so that elastic jobs shrink.

Rules: pure; the card is chosen anew, by the same rater, where the worker starts: only there it is known which cards the
workers of others hold. Pools with virtual clusters go another way (voda/planner/virtual_clusters/share_cards.py).
"""

from collections.abc import Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from voda.domain.gpus import GpuRequest, Gpus
from voda.domain.job import Job
from voda.domain.plan import Placement
from voda.domain.reasons.cells import NeedsPart, NoCard
from voda.domain.reasons.outcomes import GetsPart, Reason, Waits
from voda.domain.state import ClusterState
from voda.planner.card_parts import CardParts
from voda.planner.card_sizes import lacking_memory, largest_card_mib
from voda.planner.feasibility import largest_refusal, without_jobs
from voda.planner.spare_gpus import is_waiting, spare_gpus, takes_shares


class PlacedShares(Struct, frozen=True, kw_only=True):
    """Where the jobs go that ask for a part of a card, and why."""

    placement: Placement = {}
    reasons: Mapping[str, Reason] = {}


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


class _ShareDraft:
    """What is left of the cards, the whole cards that may still be shared, and what follows for the jobs."""

    def __init__(self, view: ClusterState) -> None:
        # Only such jobs need numpy.
        from voda.sharing.accounts import OpenCards

        self.placement: dict[str, tuple[str, ...]] = {}
        self.reasons: dict[str, Reason] = {}
        self.nodes = dict(view.nodes)
        self._view = view
        self._node_of = {uid: name for name in reversed([*view.shares]) for uid in view.shares[name].pods}
        self._parts = CardParts(view.shares)
        accounts = {name: account for name, account in view.shares.items() if takes_shares(view, name)}
        spare = spare_gpus(view)
        self._cards = OpenCards(accounts)
        self._spare = {name: spare[name] for name in accounts}
        """Node -> whole cards that no running job needs for its minimum, where shares may still come to them."""
        self._left = sum(spare.values())
        """Of the pool, less what jobs need that come before."""
        self._largest_mib = largest_card_mib(view.nodes.values())
        self._open = tuple(accounts)
        """Nodes to which shares may come."""
        self._close_whole()

    def add(self, job: Job) -> None:
        """Give a job its share, or, of one that waits for whole GPUs, note what it needs."""
        spec = job.spec
        if spec.share is None:
            need = spec.min_replicas * spec.gpus_per_replica
            self._left -= need if need <= self._left else 0
            self._close_whole()
            return
        name = self._node_of.get(spec.job_id, "")
        if name and (name in self._view.closed_nodes or takes_shares(self._view, name)):
            self.placement[spec.job_id] = (name,)
            has = self._parts.of(name, spec.job_id)
            assert has is not None, "it has a part of a card of this node"
            self.reasons[spec.job_id] = has
        else:
            self._place(job, spec.share)

    def _place(self, job: Job, request: GpuRequest) -> None:
        chosen = self._cards.choose(request, job.refusals)
        if chosen is None:
            why = lacking_memory(self._largest_mib, request) or self._why_none(job)
            self.reasons[job.spec.job_id] = Waits(why=(NeedsPart(request=request), why))
            return
        name, card = chosen
        is_whole = self._cards.give(name, card, request)
        if is_whole:
            self._take_whole(name)
        self.placement[job.spec.job_id] = (name,)
        self.reasons[job.spec.job_id] = GetsPart(request=request, node=name, is_whole=is_whole)

    def _take_whole(self, name: str) -> None:
        node = self.nodes[name]
        self.nodes[name] = replace(node, foreign_gpus=Gpus(min(node.gpus, node.foreign_gpus + 1)))
        self._spare[name] -= 1
        self._left -= 1
        self._close_whole()

    def _close_whole(self) -> None:
        """Keep the whole cards of nodes of which none may be shared any more."""
        for name in [name for name, count in self._spare.items() if count <= 0 or self._left <= 0]:
            self._cards.close_whole(name)
            del self._spare[name]

    def _why_none(self, job: Job) -> NoCard:
        if not self._open:
            return NoCard(cause="none_shared")
        most = self._cards.most_left()
        milli, memory_mib = most or (0, 0)
        return replace(self._why_no_whole(job), is_any_shared=bool(most), milli=milli, memory_mib=memory_mib)

    def _why_no_whole(self, job: Job) -> NoCard:
        """Return why a job that found no room beside others gets no whole card."""
        if not any(self.nodes[name].usable_gpus for name in self._open):
            return NoCard(cause="none_free")
        if not self._spare:
            return NoCard(cause="all_needed")
        if job.refusals:
            return NoCard(cause="refused", refused=largest_refusal(self._view, job))
        return NoCard(cause="too_small")


def _in_order(view: ClusterState) -> Sequence[Job]:
    """Return the jobs with a part of a card, and those that wait for whole GPUs, in the order in which they come."""
    shares = (job for job in view.jobs.values() if job.spec.share and not job.is_canceling)
    jobs = [*shares, *(job for job in view.jobs.values() if is_waiting(view, job))]
    return sorted(jobs, key=lambda job: (not job.workers, -job.spec.priority, job.submitted_at, job.spec.job_id))
