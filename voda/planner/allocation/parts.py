"""Reasons of a policy that saw a part of the jobs: those of a priority, or of a user. Pure."""

from msgspec.structs import replace

from voda.domain.reasons.outcomes import Reason
from voda.domain.reasons.policies import InOrder


def of_part(reason: Reason, *, priority: int | None = None, user: str | None = None) -> Reason:
    """Return the reason with what the jobs that share the GPUs have in common, as there are others beside them."""
    if not any(isinstance(cause, InOrder) for cause in reason.why):
        return reason
    why = []
    for cause in reason.why:
        if isinstance(cause, InOrder):
            part = cause.priority if priority is None else priority, cause.user if user is None else user
            cause = replace(cause, priority=part[0], user=part[1])
        why.append(cause)
    return replace(reason, why=tuple(why))
