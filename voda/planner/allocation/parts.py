"""Reasons of a policy that saw a part of the jobs: those of a priority, or of a user. Pure."""

from msgspec.structs import replace

from voda.domain.reasons.outcomes import Reason
from voda.domain.reasons.policies import InOrder


def of_part(reason: Reason, *, priority: int | None = None, user: str | None = None) -> Reason:
    """Return the reason with what the jobs that share the GPUs have in common, as there are others beside them."""
    part = {name: value for name, value in (("priority", priority), ("user", user)) if value is not None}
    why = tuple([replace(cause, **part) if isinstance(cause, InOrder) else cause for cause in reason.why])
    return reason if why == reason.why else replace(reason, why=why)
