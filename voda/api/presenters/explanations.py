"""Explanations as the API shows them."""

from voda.api.presenters.timestamps import instant
from voda.api.schemas.explanations import DecisionView, EndedJobView, ExplanationView, ShortageView
from voda.projections.history import FinishedJob
from voda.timetravel.explanation import Decision, Explanation, Shortage


def explanation_of(told: Explanation, *, expected_start_at: float | None = None) -> ExplanationView:
    """Return an explanation.

    Args:
        told: of one job at one moment.
        expected_start_at: where it waits; seconds since the epoch.
    """
    return ExplanationView(
        job_id=told.job_id,
        pool=told.pool,
        position=told.position,
        at=instant(told.at),
        phase=told.phase,
        is_preempted=told.is_preempted,
        since=instant(told.since),
        min_replicas=told.spec.min_replicas,
        max_replicas=told.spec.max_replicas,
        requested_replicas=told.spec.requested,
        gpus_per_replica=told.spec.gpus_per_replica,
        policy=told.policy,
        placer=told.placer,
        nodes=told.nodes,
        planned=told.planned,
        next=told.next,
        reason=told.reason,
        queue_level=told.queue_level,
        queue_position=told.queue_position,
        queue_length=told.queue_length,
        shortage=_shortage(told.shortage) if told.shortage else None,
        suggestions=told.suggestions,
        expected_start_at=instant(expected_start_at),
        decisions=tuple(_decision(decision) for decision in told.decisions),
        ended=_story(told.ended) if told.ended else None,
    )


def _decision(decision: Decision) -> DecisionView:
    return DecisionView(
        position=decision.position,
        decided_at=instant(decision.at),
        plan=decision.plan,
        policy=decision.policy,
        before=decision.before,
        after=decision.after,
        reason=decision.reason,
        cause=decision.cause,
        cause_position=decision.cause_position,
    )


def _shortage(short: Shortage) -> ShortageView:
    return ShortageView(
        needs_gpus=short.needs_gpus,
        wishes_gpus=short.wishes_gpus,
        capacity_gpus=short.capacity_gpus,
        free_gpus=short.free_gpus,
        largest_free_gpus=short.largest_free_gpus,
        jobs_served=short.jobs_served,
    )


def _story(ended: FinishedJob) -> EndedJobView:
    return EndedJobView(
        outcome=ended.outcome,
        submitted_at=instant(ended.submitted_at),
        started_at=instant(ended.first_started_at),
        finished_at=instant(ended.finished_at),
        jct_s=ended.jct_s,
        queueing_s=ended.queueing_s,
        running_s=ended.running_s,
        gpu_s=ended.gpu_s,
        starts=ended.starts,
        resizes=ended.resizes,
        migrations=ended.migrations,
        workers_moved=ended.workers_moved,
        was_spanning=ended.was_spanning,
    )
