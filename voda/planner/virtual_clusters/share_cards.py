"""Shared cards where a pool has virtual clusters: each is one whole cell, for which a job of one GPU stands in.

A decision in cells sees a stand-in for each card (`card_cells` says which there are), and none of its jobs;
`share_answers` gives each of them what the stand-in got.

Rules: pure; a card with a guarantee on which a job runs gives way to nobody: its stand-in has the highest priority.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Set
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from voda.cells.gangs import HIGHEST
from voda.domain.gpus import Gpus
from voda.domain.job import Job
from voda.domain.node import Node
from voda.domain.plan import Plan
from voda.domain.reasons.nodes import NodeRefusal, SmallCards
from voda.domain.shares import SharingNode
from voda.domain.state import ClusterState, Estimate, linear_speedup
from voda.planner.virtual_clusters.card_cells import CardCell, cards_of_jobs, least_memory_mib, owner_of

T = TypeVar("T")


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


def with_share_cards(view: ClusterState, known: Iterable[str] = (), last: Set[str] = frozenset()) -> ShareCards:
    """Return the view in which cards stand in for the jobs that share them.

    Args:
        known: all jobs of the pool, where the view lacks some: cards that they share are not others', and are free
            for a plan as soon as it has the jobs there no more.
        last: jobs that others go before for a while.
    """
    jobs = {job_id: job for job_id, job in view.jobs.items() if job.spec.share is not None}
    accounts = [account for account in view.shares.values() if account.pods]
    uids = {*known, *view.jobs, *view.outlived} if accounts else set()
    if not jobs and not any(uids & account.pods.keys() for account in accounts):
        return ShareCards(view=view)
    sizes = least_memory_mib(view)
    cards = {card.job_id: card for card in cards_of_jobs(view, jobs.values(), sizes, last)}
    too_small = _too_small(sizes, cards.values())
    others = {job_id: job for job_id, job in view.jobs.items() if job_id not in jobs}
    shown = replace(
        view,
        jobs=others | {name: _stand_in(view, card, too_small) for name, card in cards.items()},
        nodes=_nodes(view, cards.values(), uids),
        plan=_plan(view.plan, jobs.keys(), cards),
        estimates={**view.estimates, **{name: _estimate(view, card) for name, card in cards.items()}},
    )
    return ShareCards(view=shown, cards=cards)


def _stand_in(view: ClusterState, card: CardCell, too_small: Mapping[int, Mapping[str, NodeRefusal]]) -> Job:
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
        refusals={**_without(too_small[card.used[1]], card.node), **refusals},
        fits={},
    )


def _too_small(sizes: Mapping[str, int], cards: Iterable[CardCell]) -> Mapping[int, Mapping[str, NodeRefusal]]:
    """Return MiB that a card's jobs need -> the nodes whose cards have less, and why."""
    return {
        needed: {
            name: SmallCards(memory_mib=None if size < 0 else size) for name, size in sizes.items() if size < needed
        }
        for needed in {card.used[1] for card in cards}
    }


def _without(refusals: Mapping[str, NodeRefusal], node: str) -> Mapping[str, NodeRefusal]:
    return {name: why for name, why in refusals.items() if name != node} if node in refusals else refusals


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
