"""What a decision in cells gives to the cards that jobs share, as the answer for each of these jobs.

Rule: all jobs of a card have its node and its cell, those of its virtual cluster its guarantee; each has one sentence.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from heapq import nlargest

from msgspec.structs import replace

from voda.domain.job import Job
from voda.domain.reasons.cells import MostLeft, NeedsPart
from voda.domain.reasons.outcomes import Cause, GetsPart, Reason, Waits
from voda.domain.state import ClusterState
from voda.planner.candidates import Placed
from voda.planner.card_parts import CardParts
from voda.planner.virtual_clusters.card_cells import CardCell, Owner, owner_of, request_of_share
from voda.planner.virtual_clusters.share_cards import ShareCards


def with_share_answers(view: ClusterState, shares: ShareCards, placed: Placed) -> Placed:
    """Return a decision in cells on the jobs themselves; `view` is the one from which `shares` was made."""
    if not (cards := shares.cards):
        return placed
    placement, left_out = shares.by_job(placed.placement), shares.by_job(placed.left_out)
    reasons = shares.by_job(placed.reasons)
    emptiest, parts = _emptiest(cards.values()), CardParts(view.shares)
    for card in cards.values():
        # One of two at most is its own.
        others = [each for each in emptiest.get(card.owner, ()) if each is not card]
        for job in card.jobs:
            job_id = job.spec.job_id
            nodes, reason = placement.get(job_id), reasons.get(job_id, Waits())
            why = (
                _why(job, nodes[0], reason, card, parts)
                if nodes
                else _why_none(job, reason, others if owner_of(job) == card.owner else emptiest.get(owner_of(job), ()))
            )
            reasons[job_id] = why
            if job_id in left_out:
                left_out[job_id] = why
    return Placed(
        placement=placement,
        guaranteed=shares.by_job(placed.guaranteed, owned=True),
        devices=shares.by_job(placed.devices),
        reasons=reasons,
        left_out=left_out,
    )


def _why(job: Job, node: str, reason: Reason, card: CardCell, parts: CardParts) -> Reason:
    if job.workers and (has := parts.of(node, job.spec.job_id, *reason.why)):
        return has
    is_whole = len(card.jobs) == 1
    return GetsPart(request=request_of_share(job), node=node, is_whole=is_whole, why=reason.why)


def _why_none(job: Job, reason: Reason, emptiest: Sequence[CardCell]) -> Reason:
    """Return what a job lacks: room on the other cards of its virtual cluster, and a cell for one more."""
    lacks: list[Cause] = [NeedsPart(request=request_of_share(job))]
    if emptiest:
        milli, memory_mib = emptiest[0].left
        lacks.append(MostLeft(virtual_cluster=owner_of(job)[0], milli=milli, memory_mib=memory_mib))
    return replace(reason, why=(*lacks, *reason.why))


def _emptiest(cards: Iterable[CardCell]) -> Mapping[Owner, Sequence[CardCell]]:
    """Return the two cards of each owner of which most is left, of those that have a node."""
    by_owner = defaultdict[Owner, list[CardCell]](list)
    for card in cards:
        if card.node:
            by_owner[card.owner].append(card)
    return {owner: nlargest(2, each, key=lambda card: card.left) for owner, each in by_owner.items()}
