"""Which jobs share which card, where a pool has virtual clusters: by the account, by the plan, else as they fit.

1. Jobs that share a card by the account stay together; so do those that the plan in force has on one, and that may
still start there.
2. One that waits comes to the fullest card of its virtual cluster that has room, else to one more.
3. Jobs that back off come last: what the plan gives them others may have.

Rules: pure; jobs come together only in one virtual cluster, all of them under its guarantee or none.
"""

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Final

from voda.domain.cells import DEFAULT_VIRTUAL_CLUSTER
from voda.domain.gpus import MILLI_PER_DEVICE, GpuRequest
from voda.domain.job import Job
from voda.domain.shares import SharingNode
from voda.domain.state import ClusterState

_SUFFIX: Final = "+card"
"""No id of a job has it."""
Owner = tuple[str, bool, str]
"""Virtual cluster, whether under its guarantee, pinned cell."""


@dataclass(kw_only=True)
class CardCell:
    """A card, and the jobs that have a part of it or are to have one."""

    node: str = ""
    """Empty: it has none yet."""
    memory_mib: int
    jobs: list[Job] = field(default_factory=list)
    is_at_work: bool = False
    """Whether one of its jobs runs there."""
    used: tuple[int, int] = (0, 0)
    """Milli and MiB that its jobs have, or are to have."""

    @property
    def job_id(self) -> str:
        """The id of its stand-in."""
        return f"{self.jobs[0].spec.job_id}{_SUFFIX}"

    @property
    def owner(self) -> Owner:
        """Whose cell it takes; jobs of others are there from a time before these virtual clusters."""
        return owner_of(self.jobs[0])

    @property
    def left(self) -> tuple[int, int]:
        """Milli and MiB that its jobs leave."""
        return MILLI_PER_DEVICE - self.used[0], self.memory_mib - self.used[1]

    def add(self, job: Job) -> None:
        request = request_of_share(job)
        self.jobs.append(job)
        self.used = self.used[0] + request.milli, self.used[1] + request.memory_mib

    def has_room(self, job: Job) -> bool:
        """Return whether a part is left for one more job."""
        request, (milli, memory_mib) = request_of_share(job), self.left
        return milli >= max(1, request.milli) and memory_mib >= request.memory_mib


def owner_of(job: Job) -> Owner:
    """Return whose cell the card of a job takes."""
    spec = job.spec
    return spec.virtual_cluster or DEFAULT_VIRTUAL_CLUSTER, spec.is_guaranteed, spec.pinned_cell


def request_of_share(job: Job) -> GpuRequest:
    """Return which part of a card a job asks for."""
    assert job.spec.share is not None, "it asks for a part of a card"
    return job.spec.share


def least_memory_mib(view: ClusterState) -> Mapping[str, int]:
    """Return node -> the memory of its smallest card; below 0 where it has none to share."""
    accounts = ((name, view.shares.get(name)) for name in view.nodes)
    return {
        name: -1 if account is None else min((device.memory_mib for device in account.devices), default=-1)
        for name, account in accounts
    }


def cards_of_jobs(
    view: ClusterState, jobs: Iterable[Job], sizes: Mapping[str, int], last: Set[str] = frozenset()
) -> Sequence[CardCell]:
    """Return the cards of all these jobs but those that are being canceled.

    Args:
        view: has the plan in force and the accounts of cards.
        jobs: those that ask for a part of one.
        sizes: as `least_memory_mib` has them.
        last: jobs that others go before for a while.
    """
    draft = _Cards(view, sizes)
    ordered = sorted((job for job in jobs if not job.is_canceling), key=_rank)
    for are_last in (False, True):
        those = [job for job in ordered if (job.spec.job_id in last and not draft.holds(job)) == are_last]
        for job in [job for job in those if not draft.keep(job)]:
            draft.join(job)
    return draft.cards


def _rank(job: Job) -> tuple[bool, int, float, str]:
    return not job.workers, -job.spec.priority, job.submitted_at, job.spec.job_id


class _Cards:
    """The cards as they fill."""

    def __init__(self, view: ClusterState, sizes: Mapping[str, int]) -> None:
        self.cards: list[CardCell] = []
        self._view = view
        self._sizes = sizes
        self._by_account: dict[tuple[str, int], CardCell] = {}
        self._by_plan: dict[tuple[str, tuple[int, ...]], CardCell] = {}
        self._open: defaultdict[Owner, list[tuple[bool, int, int, int]]] | None = None
        """The cards to which jobs of an owner may come, the fullest first: whether it has no node yet, milli and MiB
        left, place in `cards`. None: nobody has come to one."""

    def holds(self, job: Job) -> bool:
        """Return whether a job has its part, as far as the account of its node says."""
        nodes = self._view.plan.placement.get(job.spec.job_id)
        return nodes is not None and self._held(nodes[0], job) is not None

    def keep(self, job: Job) -> bool:
        """Leave a job on the card that it has, or that the plan has for it; return False where there is none."""
        view, job_id = self._view, job.spec.job_id
        nodes, devices = view.plan.placement.get(job_id), view.plan.devices.get(job_id)
        if nodes is None:
            return False
        (node, *_), held = nodes, self._held(nodes[0], job)
        planned = (node, devices[0]) if devices and (job.workers or self._takes(node, job)) else None
        card = None
        if held is not None:
            card = self._by_account.get((node, held[0]))
        elif planned is None or ((card := self._by_plan.get(planned)) is not None and not card.has_room(job)):
            return False
        if card is None:
            card = CardCell(node=node, memory_mib=held[1] if held else self._sizes.get(node, -1))
            self.cards.append(card)
        self._add(card, job)
        card.is_at_work = card.is_at_work or bool(job.workers)
        if held is not None:
            self._by_account[node, held[0]] = card
        if planned is not None:
            self._by_plan.setdefault(planned, card)
        return True

    def join(self, job: Job) -> None:
        """Bring a job to the fullest card that has room for it, best to one that is there; else to one more."""
        request = request_of_share(job)
        there = self._cards_of(owner_of(job))
        for has_node in (True, False):
            first = bisect_left(there, (not has_node, max(1, request.milli), request.memory_mib, 0))
            for is_new, _, memory_mib, at in there[first:]:
                if is_new == has_node:
                    break
                card = self.cards[at]
                if memory_mib >= request.memory_mib and (is_new or self._takes(card.node, job)):
                    self._add(card, job, at)
                    return
        fitting = [size for size in self._sizes.values() if size >= request.memory_mib]
        self.cards.append(CardCell(memory_mib=min(fitting, default=0)))
        self._add(self.cards[-1], job, len(self.cards) - 1)

    def _add(self, card: CardCell, job: Job, at: int = -1) -> None:
        """Add a job to a card; `at` is its place in `cards` where that is known."""
        if self._open is None or at < 0:
            # Those who keep their cards come before all who look for one: then it is read once.
            self._open = None
            card.add(job)
            return
        there = self._open[owner_of(job)]
        if card.jobs:
            there.pop(bisect_left(there, _place(card, at)))
        card.add(job)
        insort(there, _place(card, at))

    def _cards_of(self, owner: Owner) -> list[tuple[bool, int, int, int]]:
        """Return the cards to which jobs of an owner may come."""
        if self._open is None:
            self._open = defaultdict(list)
            for at, card in enumerate(self.cards):
                owners = {owner_of(job) for job in card.jobs}
                if len(owners) == 1 and self._is_open(card.node or None):
                    self._open[owners.pop()].append(_place(card, at))
            for each in self._open.values():
                each.sort()
        return self._open[owner]

    def _held(self, node: str, job: Job) -> tuple[int, int] | None:
        """Return the card of a node of which a job has a part, and its MiB; None: it has none there."""
        return _held_card(self._view.shares.get(node), job.spec.job_id)

    def _takes(self, name: str, job: Job) -> bool:
        return self._is_open(name) and name not in job.refusals

    def _is_open(self, name: str | None) -> bool:
        """Return whether jobs may come to a node; None: whichever it will be."""
        node = self._view.nodes.get(name) if name is not None else None
        return name is None or (node is not None and node.is_open and name not in self._view.closed_nodes)


def _place(card: CardCell, at: int) -> tuple[bool, int, int, int]:
    return (not card.node, *card.left, at)


def _held_card(account: SharingNode | None, job_id: str) -> tuple[int, int] | None:
    pod = None if account is None else account.pods.get(job_id)
    if account is None or pod is None:
        return None
    card = next((card for share in pod.containers.values() for card in share.cards), None)
    if card is None:
        return None
    return card, account.devices[card].memory_mib if card < len(account.devices) else 0
