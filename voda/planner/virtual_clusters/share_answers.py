"""What a decision in cells gives to the cards that jobs share, as the answer for each of these jobs.

Rule: all jobs of a card have its node and its cell, those of its virtual cluster its guarantee; each has one sentence.
"""

from collections.abc import Mapping

from voda.domain.job import Job
from voda.domain.state import ClusterState
from voda.events.event_text import request_text
from voda.planner.share_jobs import card_text
from voda.planner.virtual_clusters.cell_plan import Placed
from voda.planner.virtual_clusters.share_cards import CardCell, ShareCards, owner_of, request_of_share


def with_share_answers(view: ClusterState, shares: ShareCards, placed: Placed) -> Placed:
    """Return a decision in cells on the jobs themselves; `view` is the one from which `shares` was made."""
    if not (cards := shares.cards):
        return placed
    placement, left_out = shares.by_job(placed.placement), shares.by_job(placed.left_out)
    reasons = shares.by_job(placed.reasons)
    for card in cards.values():
        for job in card.jobs:
            job_id = job.spec.job_id
            nodes, reason = placement.get(job_id), reasons.get(job_id, "")
            why = _why(view, job, nodes[0], reason, card) if nodes else _why_none(view, job, reason, cards)
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


def _why(view: ClusterState, job: Job, node: str, reason: str, card: CardCell) -> str:
    standing = reason.partition(": ")[2]
    if (account := view.shares.get(node)) is not None and job.spec.job_id in account.pods and job.workers:
        return f"has {card_text(view.shares, job.spec.job_id)}; {standing}"
    which = "a card that others share" if len(card.jobs) > 1 else "a card that was whole"
    return f"gets {request_text(request_of_share(job))} of {which}, on {node}; {standing}"


def _why_none(view: ClusterState, job: Job, reason: str, cards: Mapping[str, CardCell]) -> str:
    """Return what a job lacks: room on the cards of its virtual cluster, and a cell for one more."""
    outcome, _, why = reason.partition(": ")
    cluster = owner_of(job)[0]
    left = [card.left for card in cards.values() if card.node and owner_of(job) == card.owner and job not in card.jobs]
    milli, memory_mib = max(left, default=(0, 0))
    shared = f"a shared one of virtual cluster {cluster} has at most {milli} milli and {memory_mib:,} MiB left; "
    return f"{outcome}: needs {request_text(request_of_share(job))} of one card; {shared if left else ''}{why}"
