"""Shared cards where a pool has virtual clusters: each is one whole cell, for which a job of one GPU stands in.

1. Jobs that share a card by the account or by the plan in force stay together. One that waits comes to a card of its
virtual cluster that has room, else to one more. 2. A decision in cells sees a stand-in for each card, and none of its
jobs (`share_answers` gives each of them what the stand-in got).

Rules: pure. Jobs come together only in one virtual cluster, all of them under its guarantee or none. A card with a
guarantee on which a job runs gives way to nobody: its stand-in has the highest priority.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Final, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from voda.cells.gangs import HIGHEST
from voda.domain.cells import DEFAULT_VIRTUAL_CLUSTER
from voda.domain.gpus import MILLI_PER_DEVICE, GpuRequest, Gpus
from voda.domain.job import Job
from voda.domain.node import Node
from voda.domain.plan import Plan
from voda.domain.shares import SharingNode
from voda.domain.state import ClusterState, Estimate, linear_speedup

T = TypeVar("T")
_SUFFIX: Final = "+card"
"""No id of a job has it."""
_Owner = tuple[str, bool, str]
"""Virtual cluster, whether under its guarantee, pinned cell."""


@dataclass(kw_only=True)
class CardCell:
    """A card, and the jobs that have a part of it or are to have one."""

    node: str = ""
    """Empty: it has none yet."""
    memory_mib: int
    jobs: list[Job] = field(default_factory=list)

    @property
    def job_id(self) -> str:
        """The id of its stand-in."""
        return f"{self.jobs[0].spec.job_id}{_SUFFIX}"

    @property
    def owner(self) -> _Owner:
        """Whose cell it takes; jobs of others are there from a time before these virtual clusters."""
        return owner_of(self.jobs[0])

    @property
    def is_at_work(self) -> bool:
        return any(job.workers for job in self.jobs)

    @property
    def left(self) -> tuple[int, int]:
        """Milli and MiB that its jobs leave."""
        requests = [request_of_share(job) for job in self.jobs]
        milli, memory_mib = (sum(each) for each in zip(*((one.milli, one.memory_mib) for one in requests), strict=True))
        return MILLI_PER_DEVICE - milli, self.memory_mib - memory_mib

    def has_room(self, job: Job) -> bool:
        """Return whether a part is left for one more job."""
        request, (milli, memory_mib) = request_of_share(job), self.left
        return milli >= max(1, request.milli) and memory_mib >= request.memory_mib


class ShareCards(Struct, frozen=True, kw_only=True):
    """A view without jobs that ask for a part of a card, and the cards that stand in for them."""

    view: ClusterState
    cards: Mapping[str, CardCell] = {}
    """By the id of the stand-in."""

    @property
    def at_work(self) -> frozenset[str]:
        """The stand-ins of cards on which a job runs: none of them leaves an idle cell for other work there."""
        return frozenset(job_id for job_id, card in self.cards.items() if card.is_at_work)

    def stand_ins(self, job_ids: Set[str]) -> Set[str]:
        """Return the jobs, with stand-ins for those of them that have a card for themselves."""
        return job_ids | {
            name for name, card in self.cards.items() if all(job.spec.job_id in job_ids for job in card.jobs)
        }

    def by_job(self, answers: Mapping[str, T], *, owned: bool = False) -> dict[str, T]:
        """Return the answers, that for a card given to each of its jobs, or to those of its owner alone."""
        spread: dict[str, T] = {}
        for name, answer in answers.items():
            card = self.cards.get(name)
            jobs = [] if card is None else [job for job in card.jobs if not owned or owner_of(job) == card.owner]
            spread |= dict.fromkeys([name] if card is None else [job.spec.job_id for job in jobs], answer)
        return spread


def with_share_cards(view: ClusterState, known: Iterable[str] = ()) -> ShareCards:
    """Return the view in which cards stand in for the jobs that share them.

    Args:
        known: all jobs of the pool, where the view lacks some: cards that they share are not others', and are free
            for a plan as soon as it has the jobs there no more.
    """
    jobs = {job_id: job for job_id, job in view.jobs.items() if job.spec.share is not None}
    accounts = [account for account in view.shares.values() if account.pods]
    uids = {*known, *view.jobs, *view.outlived} if accounts else set()
    if not jobs and not any(uids & account.pods.keys() for account in accounts):
        return ShareCards(view=view)
    cards = {card.job_id: card for card in _cards(view, jobs.values())}
    others = {job_id: job for job_id, job in view.jobs.items() if job_id not in jobs}
    shown = replace(
        view,
        jobs=others | {name: _stand_in(view, card) for name, card in cards.items()},
        nodes=_nodes(view, cards.values(), uids),
        plan=_plan(view.plan, jobs.keys(), cards),
        estimates={**view.estimates, **{name: _estimate(view, card) for name, card in cards.items()}},
    )
    return ShareCards(view=shown, cards=cards)


def owner_of(job: Job) -> _Owner:
    """Return whose cell the card of a job takes."""
    spec = job.spec
    return spec.virtual_cluster or DEFAULT_VIRTUAL_CLUSTER, spec.is_guaranteed, spec.pinned_cell


def request_of_share(job: Job) -> GpuRequest:
    """Return which part of a card a job asks for."""
    assert job.spec.share is not None, "it asks for a part of a card"
    return job.spec.share


def _cards(view: ClusterState, jobs: Iterable[Job]) -> Sequence[CardCell]:
    """Return the cards of all these jobs but those that are being canceled."""
    cards: list[CardCell] = []
    by_account: dict[tuple[str, int], CardCell] = {}
    by_plan: dict[tuple[str, tuple[int, ...]], CardCell] = {}
    waiting = []
    for job in sorted((job for job in jobs if not job.is_canceling), key=_rank):
        job_id = job.spec.job_id
        nodes, devices = view.plan.placement.get(job_id), view.plan.devices.get(job_id)
        held = None if nodes is None else _held_card(view.shares.get(nodes[0]), job_id)
        planned = (nodes[0], devices[0]) if nodes and devices else None
        card = None
        if nodes is not None and held is not None:
            card = by_account.get((nodes[0], held[0]))
        elif planned is not None and (card := by_plan.get(planned)) is not None and not card.has_room(job):
            planned = None
        if nodes is None or (held is None and planned is None):
            waiting.append(job)
            continue
        if card is None:
            card = CardCell(node=nodes[0], memory_mib=held[1] if held else _least_memory_mib(view, nodes[0]))
            cards.append(card)
        card.jobs.append(job)
        if held is not None:
            by_account[nodes[0], held[0]] = card
        if planned is not None:
            by_plan.setdefault(planned, card)
    for job in waiting:
        _join(view, cards, job)
    return cards


def _rank(job: Job) -> tuple[bool, int, float, str]:
    return not job.workers, -job.spec.priority, job.submitted_at, job.spec.job_id


def _held_card(account: SharingNode | None, job_id: str) -> tuple[int, int] | None:
    """Return the card of which a job has a part, and its MiB; None: it has none there."""
    pod = None if account is None else account.pods.get(job_id)
    if account is None or pod is None:
        return None
    card = next(card for share in pod.containers.values() for card in share.cards)
    return card, account.devices[card].memory_mib if card < len(account.devices) else 0


def _join(view: ClusterState, cards: list[CardCell], job: Job) -> None:
    """Bring a job to the fullest card that has room for it, best to one that is there; else to one more."""

    def is_open(card: CardCell) -> bool:
        node = view.nodes.get(card.node)
        takes = (
            node is not None and node.is_open and card.node not in view.closed_nodes and node.name not in job.refusals
        )
        return (takes or not card.node) and all(owner_of(each) == owner_of(job) for each in card.jobs)

    fitting = [card for card in cards if is_open(card) and card.has_room(job)]
    if not fitting:
        request = request_of_share(job)
        sizes = [_least_memory_mib(view, name) for name in view.nodes]
        fitting = [CardCell(memory_mib=min((size for size in sizes if size >= request.memory_mib), default=0))]
        cards += fitting
    min(fitting, key=lambda card: (not card.node, card.left if card.jobs else ())).jobs.append(job)


def _least_memory_mib(view: ClusterState, node: str) -> int:
    """Return the memory of the smallest card of a node; below 0 where it has none to share."""
    account = view.shares.get(node)
    return min((device.memory_mib for device in account.devices), default=-1) if account is not None else -1


def _stand_in(view: ClusterState, card: CardCell) -> Job:
    """Return the job of one GPU that has a card in place of those who share it."""
    first = card.jobs[0]
    is_sure = card.is_at_work and any(job.spec.job_id in view.plan.guaranteed for job in card.jobs)
    highest = max(job.spec.priority for job in card.jobs if owner_of(job)[0] == card.owner[0])
    spec = replace(
        first.spec,
        job_id=card.job_id,
        share=None,
        gpus_per_replica=Gpus(1),
        priority=HIGHEST if is_sure and card.owner[1] else highest,
        array=None,
    )
    refusals = {node: why for job in card.jobs for node, why in job.refusals.items()}
    return replace(
        first,
        spec=spec,
        submitted_at=min(job.submitted_at for job in card.jobs),
        workers={0: card.node} if card.is_at_work else {},
        refusals={**_too_small(view, card), **refusals},
    )


def _too_small(view: ClusterState, card: CardCell) -> Mapping[str, str]:
    needed = card.memory_mib - card.left[1]
    sizes = {name: _least_memory_mib(view, name) for name in view.nodes if name != card.node}
    return {
        name: "it has no cards to share" if size < 0 else f"its smallest card has {size:,} MiB"
        for name, size in sizes.items()
        if size < needed
    }


def _nodes(view: ClusterState, cards: Iterable[CardCell], known: Set[str]) -> Mapping[str, Node]:
    """Return the nodes, their shared cards no longer others'; closed ones have room for the cards at work there."""
    nodes = dict(view.nodes)
    for name, account in view.shares.items():
        if name in nodes and name not in view.closed_nodes and (own := _own_cards(account, known)):
            node = nodes[name]
            nodes[name] = replace(node, foreign_gpus=Gpus(max(0, node.foreign_gpus - own)))
    for name, count in Counter(card.node for card in cards if card.is_at_work).items():
        if name in view.closed_nodes:
            nodes[name] = replace(nodes[name], gpus=nodes[name].gpus + count)
    return nodes


def _own_cards(account: SharingNode, known: Set[str]) -> int:
    """Return how many cards of a node jobs alone have parts of."""
    own, others = set[int](), set[int]()
    for uid, pod in account.pods.items():
        cards = own if uid in known else others
        cards.update(card for share in pod.containers.values() for card in share.cards if card < len(account.devices))
    return len(own - others)


def _plan(plan: Plan, jobs: Set[str], cards: Mapping[str, CardCell]) -> Plan:
    """Return the plan in force, with cards in place of these jobs."""
    placement, devices, guaranteed = (
        {job_id: each for job_id, each in of_jobs.items() if job_id not in jobs}
        for of_jobs in (plan.placement, plan.devices, plan.guaranteed)
    )
    for name, card in cards.items():
        ids = [job.spec.job_id for job in card.jobs]
        if card.node:
            placement[name] = (card.node,)
            devices[name] = next((plan.devices[job_id] for job_id in ids if job_id in plan.devices), ())
        if quotas := next((plan.guaranteed[job_id] for job_id in ids if job_id in plan.guaranteed), ()):
            guaranteed[name] = quotas
    return replace(plan, placement=placement, devices=devices, guaranteed=guaranteed)


def _estimate(view: ClusterState, card: CardCell) -> Estimate:
    """Return what is lost when all its jobs leave a card at once, and how long the last of them needs it."""
    known = [view.estimates.get(job.spec.job_id) for job in card.jobs]
    return Estimate(
        speedup=linear_speedup(1),
        remaining_s=max(math.inf if each is None else each.remaining_s for each in known),
        resize_cost_s=sum(view.settings.resize_cost_s if each is None else each.resize_cost_s for each in known),
    )
