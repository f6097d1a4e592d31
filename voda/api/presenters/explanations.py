"""Explanations as the API shows them."""

from voda.api.presenters.jobs import share_of
from voda.events.cell_text import part_text
from voda.events.reason_text import job_text
from voda.projections.history import FinishedJob
from voda.timetravel.explanation import JobDecision, JobExplanation
from voda.wire.base import instant, view_of
from voda.wire.explanations import DecisionView, EndedJobView, ExplanationView, ShortageView


def explanation_of(explanation: JobExplanation, *, expected_start_at: float | None = None) -> ExplanationView:
    """Return an explanation; a waiting job is expected to start at `expected_start_at`, seconds since the epoch."""
    spec, shortage, ended = explanation.spec, explanation.shortage, explanation.ended
    return view_of(
        ExplanationView,
        explanation,
        message=job_text(explanation.reason),
        next_message=job_text(explanation.next_reason),
        card=part_text(explanation.gpu) if explanation.gpu is not None else "",
        at=instant(explanation.at),
        since=instant(explanation.since),
        min_replicas=spec.min_replicas,
        max_replicas=spec.max_replicas,
        requested_replicas=spec.requested,
        gpus_per_replica=spec.gpus_per_replica,
        share=share_of(spec),
        shortage=view_of(ShortageView, shortage) if shortage else None,
        expected_start_at=instant(expected_start_at),
        next_try_at=instant(explanation.next_try_at),
        decisions=tuple(map(_decision, explanation.decisions)),
        ended=_ended(ended) if ended else None,
    )


def _decision(decision: JobDecision) -> DecisionView:
    return view_of(
        DecisionView,
        decision,
        decided_at=instant(decision.at),
        message=job_text(decision.reason) or "the job had ended",
    )


def _ended(job: FinishedJob) -> EndedJobView:
    return view_of(
        EndedJobView,
        job,
        submitted_at=instant(job.submitted_at),
        started_at=instant(job.first_started_at),
        finished_at=instant(job.finished_at),
    )
