"""What a job runs on this machine: its programs, what they are told of each other, how failures are treated."""

from collections.abc import Mapping
from typing import Any, Literal

from msgspec import Struct

from voda.domain.errors import ActionRefused
from voda.domain.job import JobSpec
from voda.manifests import programs
from voda.manifests.parsed import ElasticPolicy, Program, RunPolicy

Kind = Literal["mpi", "torch"]


class RunSpec(Struct, frozen=True, kw_only=True):
    """A job, ready to be run."""

    spec: JobSpec
    kind: Kind
    programs: Mapping[str, Program]
    """role -> program; an MPIJob's workers run none of their own here."""
    policy: RunPolicy
    is_mpi_v2: bool = False
    """MPIJob v2beta1: its launcher is a Kubernetes Job, which restarts whatever the pod's own restartPolicy says."""
    slots_per_worker: int = 1
    nproc_per_node: str = "1"
    elastic: ElasticPolicy | None = None
    working_dir: str = ""
    """Of the annotation."""

    @property
    def grace_s(self) -> float:
        """Seconds the job's processes have to end by themselves, the longest of any role."""
        return max((program.grace_s for program in self.programs.values()), default=30.0)

    @property
    def has_master(self) -> bool:
        """Whether replica 0 is a master."""
        return self.kind == "torch" and "master" in self.programs

    @property
    def name(self) -> str:
        """The job's name, of which its replicas' host names are made."""
        return self.spec.name or self.spec.job_id

    def role_of(self, replica: str) -> str:
        """Return the role of a replica by its name."""
        return replica.partition("-")[0]

    def replica_of(self, index: int) -> str:
        """Return the name of the replica that worker `index` is."""
        if not self.has_master:
            return f"worker-{index}"
        return "master-0" if index == 0 else f"worker-{index - 1}"


def run_spec_of(spec: JobSpec) -> RunSpec:
    """Return what a job's manifest comes to.

    Raises:
        ActionRefused: there is no manifest, or it names no command that could be run here.
    """
    if spec.manifest is None:
        raise ActionRefused(f"job {spec.job_id}: was submitted without a manifest, so there is nothing to run")
    return _read(spec, spec.manifest)


def _read(spec: JobSpec, manifest: Mapping[str, Any]) -> RunSpec:
    found = {role: programs.program(manifest, role) for role in ("launcher", "master", "worker")}
    kind: Kind = "mpi" if found["launcher"] is not None else "torch"
    needed = ("launcher",) if kind == "mpi" else ("master", "worker")
    known = {role: program for role in needed if (program := found[role]) is not None}
    for role, program in known.items():
        if not program.argv:
            raise ActionRefused(
                f"job {spec.job_id}: the {role} names no command, and its image's own cannot be known on this machine;"
                " give the container a command"
            )
    return RunSpec(
        spec=spec,
        kind=kind,
        programs=known,
        policy=programs.run_policy(manifest),
        is_mpi_v2=manifest.get("apiVersion") == "kubeflow.org/v2beta1",
        slots_per_worker=programs.slots_per_worker(manifest),
        nproc_per_node=programs.nproc_per_node(manifest),
        elastic=programs.elastic_policy(manifest),
        working_dir=programs.working_dir_annotation(manifest),
    )
