"""What a job runs on this machine: its programs, how they find each other, and how failures are treated."""

from collections.abc import Iterator, Mapping
from typing import Final, Literal

from msgspec import Struct

from voda.cluster.local.isolation.limits import Limits, role_limits
from voda.domain.errors import ActionRefused, InvalidField
from voda.domain.job import JobSpec
from voda.kinds.base import JobManifest
from voda.kinds.launcher import starts_agents
from voda.kinds.pod_template import TorchElasticPolicy
from voda.manifests.conversion import typed_manifest
from voda.manifests.programs import (
    DEFAULT_NICE,
    FailurePolicy,
    ReplicaProgram,
    env_files_annotation,
    failure_policy,
    nice_annotation,
    program,
    working_dir_annotation,
)
from voda.programs.program_manifest import SCRIPT, kept_script_of

LAUNCHER: Final = "launcher"
_RESTARTS: Final = ("--max-restarts", "--max_restarts", "PET_MAX_RESTARTS")


class RunSpec(Struct, frozen=True, kw_only=True):
    """A job, ready to be run."""

    spec: JobSpec
    kind: Literal["mpi", "torch"]
    programs: Mapping[str, ReplicaProgram]
    """role -> program; an MPIJob's workers have none here."""
    policy: FailurePolicy
    is_mpi_v2: bool = False
    """MPIJob v2beta1: its launcher is a Kubernetes Job, which restarts whatever the pod's own restartPolicy says."""
    processes: int | None = None
    """Of one worker: an MPIJob's slots, or what a torch agent starts; None: one for each of its GPUs."""
    elastic: TorchElasticPolicy | None = None
    index_variable: str = ""
    """Variable with the index of a replica; empty: none."""
    working_dir: str = ""
    """Of the annotation."""
    script: str = ""
    """Word of the command in whose place `kept_script` runs, if there is one."""
    kept_script: str = ""
    nice: int = DEFAULT_NICE
    """How much its programs give way for CPUs, 0 to 19."""
    limits: Mapping[str, Limits] = {}
    """role -> what a replica may take."""
    env_files: Mapping[str, str] = {}
    """Variable -> the file of the job's user that holds its value."""

    @property
    def grace_s(self) -> float:
        """Seconds the job's processes have to end by themselves, the longest of any role."""
        return max((program.grace_s for program in self.programs.values()), default=30.0)

    @property
    def slots_per_worker(self) -> int:
        return self.processes or 1

    @property
    def has_master(self) -> bool:
        return self.kind == "torch" and "master" in self.programs

    @property
    def name(self) -> str:
        return self.spec.name or self.spec.job_id

    @property
    def is_gang(self) -> bool:
        """Whether its workers are agents that meet: they begin and end together, and each failure is that of all."""
        if self.kind != "torch":
            return False
        return self.elastic is not None or any(starts_agents(runs.argv) for runs in self.programs.values())

    @property
    def restarts_itself(self) -> bool:
        """Whether its user tells torchrun to restart what fails, before voda hears of it."""
        return any(name in word for word in self._words for name in _RESTARTS)

    @property
    def _words(self) -> Iterator[str]:
        """Yield the words of its commands, and the names of its variables."""
        for runs in self.programs.values():
            yield from runs.argv
            yield from (name for name, _ in runs.env)

    def role_of(self, replica: str) -> str:
        return replica.partition("-")[0]

    def replica_of(self, index: int) -> str:
        if not self.has_master:
            return f"worker-{index}"
        return "master-0" if index == 0 else f"worker-{index - 1}"


def run_spec_of(spec: JobSpec) -> RunSpec:
    """Return what a job's manifest runs on this machine.

    Raises:
        ActionRefused: there is no manifest, or this machine cannot run it.
    """
    if spec.manifest is None:
        raise ActionRefused(f"job {spec.job_id}: was submitted without a manifest, so there is nothing to run")
    try:
        job = typed_manifest(spec.manifest)
    except InvalidField as error:
        # An earlier version may have accepted it.
        raise ActionRefused(f"job {spec.job_id}: its manifest cannot be used: {error}") from error
    if job.local_launch is None:
        raise ActionRefused(f"job {spec.job_id}: a {job.kind} cannot run on one machine")
    return RunSpec(
        spec=spec,
        kind=job.local_launch,
        programs=_programs(spec, job),
        policy=failure_policy(job),
        is_mpi_v2=job.is_v2,
        processes=job.processes,
        elastic=job.elastic_policy(),
        index_variable=job.index_variable,
        working_dir=working_dir_annotation(job),
        env_files=env_files_annotation(job),
        script=(job.metadata.annotations or {}).get(SCRIPT, ""),
        kept_script=kept_script_of(spec.manifest),
        nice=nice_annotation(job),
        limits=_limits(job),
    )


def _limits(job: JobManifest) -> Mapping[str, Limits]:
    try:
        return role_limits(job)
    except InvalidField:
        # An earlier version has accepted it, and did not enforce it.
        return {}


def _programs(spec: JobSpec, job: JobManifest) -> Mapping[str, ReplicaProgram]:
    found: dict[str, ReplicaProgram] = {}
    for role in (name.lower() for name in job.local_roles):
        if (runs := program(job, role)) is None:
            continue
        if not runs.argv:
            raise ActionRefused(
                f"job {spec.job_id}: the {role} names no command, and its image's own cannot be known on this machine;"
                " give the container a command"
            )
        found[role] = runs
    return found
