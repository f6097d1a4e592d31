"""What the end of one replica means for its job, as the operators have it. Pure.

Rule: only the launcher's end decides about an MPIJob, only the master's about a PyTorchJob that has one.
"""

from collections.abc import Collection
from typing import Final, Literal

from msgspec import Struct

from voda.cluster.local.processes.record import Exit
from voda.cluster.local.run_spec import Blueprint

_LEAST_RETRYABLE: Final = 128
_CANNOT_START: Final = frozenset({126, 127})


class Verdict(Struct, frozen=True, kw_only=True):
    """What to do."""

    outcome: Literal["completed", "failed", "again", "done"]
    """done: this replica is through, and the job waits for others."""
    reason: str = ""


def verdict(blueprint: Blueprint, replica: str, ended: Exit, *, failures: int, unfinished: Collection[str]) -> Verdict:
    """Judge one end.

    Args:
        blueprint: of the job.
        replica: whose program ended.
        ended: how.
        failures: of the job before this one.
        unfinished: the job's other replicas that have not ended well, those included that are to be started again.
    """
    role = blueprint.role_of(replica)
    if ended.is_success:
        return _after_success(blueprint, role, unfinished)
    what = f"{replica} {told(ended)}"
    if ended.problem and ended.exit_code in _CANNOT_START:
        return Verdict(outcome="failed", reason=what)
    policy = blueprint.policy.restart_policy.get(role, "OnFailure")
    is_retried = policy != "Never" or blueprint.is_mpi_v2
    if policy == "ExitCode" and ended.exit_code < _LEAST_RETRYABLE:
        return Verdict(outcome="failed", reason=f"{what}; its restartPolicy ExitCode takes that as permanent")
    if not is_retried:
        return Verdict(outcome="failed", reason=f"{what}; its restartPolicy is Never")
    if failures >= blueprint.policy.backoff_limit:
        restarts = f" after {failures} restart{'s' if failures > 1 else ''} (backoffLimit)" if failures else ""
        return Verdict(outcome="failed", reason=what + restarts)
    return Verdict(outcome="again")


def told(ended: Exit) -> str:
    """Say how a program ended, to follow its replica's name."""
    if ended.problem:
        return f"could not run: {ended.problem}"
    if ended.signal:
        return f"was killed by signal {ended.signal} (exit code {ended.exit_code})"
    return f"ended with exit code {ended.code}"


def _after_success(blueprint: Blueprint, role: str, unfinished: Collection[str]) -> Verdict:
    if blueprint.has_master:
        return Verdict(outcome="completed" if role == "master" else "done")
    if blueprint.kind == "mpi" or blueprint.elastic is not None or not unfinished:
        return Verdict(outcome="completed")
    return Verdict(outcome="done")
