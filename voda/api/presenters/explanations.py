"""Explanations as the API shows them."""

from voda.api.presenters.jobs import share_of
from voda.events.cell_text import part_text
from voda.events.reason_text import job_text
from voda.timetravel.explanation import JobDecision, JobExplanation
from voda.wire.base import view_of
from voda.wire.explanations import DecisionView, EndedJobView, ExplanationView, ShortageView


def explanation_of(explanation: JobExplanation, *, expected_start_at: float | None = None) -> ExplanationView:
    """Return an explanation; a waiting job is expected to start at `expected_start_at`, seconds since the epoch."""
    spec, shortage, ended = explanation.spec, explanation.shortage, explanation.ended
    return view_of(
        ExplanationView,
        explanation,
        spec,
        message=job_text(explanation.reason),
        next_message=job_text(explanation.next_reason),
        gpu=part_text(explanation.gpu) if explanation.gpu is not None else "",
        requested_replicas=spec.requested,
        sizes="" if spec.sizes is None else str(spec.sizes),
        share=share_of(spec),
        shortage=view_of(ShortageView, shortage) if shortage else None,
        expected_start_at=expected_start_at,
        decisions=tuple(map(_decision, explanation.decisions)),
        ended=view_of(EndedJobView, ended, started_at=ended.first_started_at) if ended else None,
    )


def _decision(decision: JobDecision) -> DecisionView:
    message = job_text(decision.reason) or "the job had ended"
    return view_of(DecisionView, decision, decided_at=decision.at, message=message)
