"""Reasons of tests: as sentences, which users read, and as records of any words."""

from collections.abc import Mapping

from voda.domain.reasons.outcomes import Halted, JobReason, Reason
from voda.events.text.reasons import job_text


def said(reason: JobReason | None) -> str:
    """Return the sentence of a reason; empty: there is none."""
    return job_text(reason)


def sentences(reasons: Mapping[str, Reason]) -> dict[str, str]:
    """Return the sentences of all jobs."""
    return {job_id: job_text(reason) for job_id, reason in reasons.items()}


def worded(text: str) -> Reason:
    """Return a reason of which the sentence is this text."""
    return Halted(text=text)
