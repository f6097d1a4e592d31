"""What a manifest comes to: a job's spec, what of it cannot be honoured, and the programs it runs.

Rule: pure values; nothing here knows on which cluster they will run.
"""

from collections.abc import Mapping

from msgspec import Struct

from voda.domain.job import JobSpec

POD_NAME = "VODA_POD_NAME"
"""Variable with the name of the replica's pod, such as digits-worker-0, which fieldRef metadata.name stands for."""


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


class ElasticPolicy(Struct, frozen=True, kw_only=True):
    """How the torch agents of a PyTorchJob find each other, with the operator's defaults filled in."""

    min_replicas: int
    """Of elasticPolicy alone; what the job may have in the end is in its spec."""
    max_replicas: int
    rdzv_backend: str = "c10d"
    """c10d, etcd or etcd-v2."""
    rdzv_host: str = ""
    """Empty: the first worker."""
    rdzv_port: int = 0
    """0: the port of the first worker."""
    rdzv_id: str = ""
    rdzv_conf: tuple[tuple[str, str], ...] = ()
    max_restarts: int | None = None
    """None: not said, so torchrun takes its own default. TorchElastic counts resizes against it too."""
    nproc_per_node: str = "auto"
    """auto, cpu, gpu or a number."""
    is_standalone: bool = False
