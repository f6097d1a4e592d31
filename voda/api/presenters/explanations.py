"""Explanations as the API shows them."""

import math

from voda.api.presenters.jobs import share_of
from voda.domain.state import Belief, Estimate
from voda.events.text.cells import part_text
from voda.events.text.reasons import job_text
from voda.timetravel.explanation import JobDecision, JobExplanation
from voda.wire.base import view_of
from voda.wire.explanations import BeliefView, DecisionView, EndedJobView, EstimateView, ExplanationView, ShortageView


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
        estimate=_estimate(explanation.estimate, explanation) if explanation.estimate is not None else None,
        decisions=tuple(map(_decision, explanation.decisions)),
        ended=view_of(EndedJobView, ended, started_at=ended.first_started_at) if ended else None,
    )


def _estimate(estimate: Estimate, explanation: JobExplanation) -> EstimateView:
    requested = min(explanation.spec.requested, len(estimate.speedup) - 1)
    return EstimateView(
        remaining_s=_belief(estimate.remaining_s, estimate.remaining_belief),
        epochs_known_by=estimate.length_source,
        speedup=_belief(estimate.speedup[requested], estimate.speedup_belief),
        resize_cost_s=_belief(estimate.resize_cost_s, estimate.resize_cost_belief),
        doubt=explanation.doubt,
    )


def _belief(value: float, belief: Belief) -> BeliefView:
    known = [figure if math.isfinite(figure) else None for figure in (value, belief.spread)]
    return BeliefView(value=known[0], known_by=belief.source, spread=known[1])


def _decision(decision: JobDecision) -> DecisionView:
    message = job_text(decision.reason) or "the job had ended"
    return view_of(DecisionView, decision, decided_at=decision.at, message=message)
