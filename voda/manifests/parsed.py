"""What a manifest comes to: a job's spec, what of it cannot be honoured, and the programs it runs.

Rule: pure values; nothing here knows on which cluster they will run.
"""

from collections.abc import Mapping

from msgspec import Struct

from voda.domain.job import JobSpec


class Omission(Struct, frozen=True, kw_only=True):
    """A part of a manifest that a cluster does not honour; told to the user, never dropped without a word."""

    field: str
    """Path, e.g. spec.mpiReplicaSpecs.Worker.template.spec.containers[0].image."""
    message: str


class Parsed(Struct, frozen=True, kw_only=True):
    """A manifest that was understood."""

    spec: JobSpec
    """Complete but for its job_id, which is the name until the submit settles it."""
    omissions: tuple[Omission, ...] = ()


class Program(Struct, frozen=True, kw_only=True):
    """What one replica runs, before `$(VAR)` is expanded (see container.expanded)."""

    role: str
    """launcher, worker or master."""
    argv: tuple[str, ...]
    """command, then args; empty: the image's own, which cannot be known."""
    env: tuple[tuple[str, str], ...] = ()
    """In the manifest's order: a later value may refer to an earlier one."""
    working_dir: str = ""
    grace_s: float = 30.0
    """terminationGracePeriodSeconds."""


class RunPolicy(Struct, frozen=True, kw_only=True):
    """How failures and ends are treated, with the operator's defaults filled in."""

    backoff_limit: int
    """Restarts after failures before the job has failed."""
    active_deadline_s: float | None = None
    ttl_after_finished_s: float | None = None
    clean_pod_policy: str = "None"
    restart_policy: Mapping[str, str] = {}
    """role -> Never, OnFailure, Always or ExitCode."""
    is_suspended: bool = False
