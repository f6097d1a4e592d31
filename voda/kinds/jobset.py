"""JobSet of Kubernetes: the JobSet controller makes Jobs of it, of which voda runs and resizes the only one.

Rule: one replicated job with one replica, because of several voda could not tell which one is to grow; its template is
that of an Indexed Job, and everything a Job can have there it has here.
"""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Final

from msgspec import Meta, Struct

from voda.domain.errors import InvalidField
from voda.domain.job import JobSpec
from voda.kinds.base import FieldWarning, KindSpec
from voda.kinds.indexed_job import (
    ENDPOINT,
    NNODES,
    ROLE,
    IndexedJobSpec,
    NumberedReplicas,
    runs_agents,
    shared_store_warning,
    variables,
)

_RENDEZVOUS: Final = ("--rdzv", "--master")
"""Begin the arguments by which torchrun is told where its peers are, besides variables."""


class JobTemplate(Struct, frozen=True):
    spec: IndexedJobSpec


class ReplicatedJob(Struct, frozen=True):
    name: str
    template: JobTemplate
    replicas: int | None = None


class JobSetSpec(KindSpec, frozen=True, rename="camel", kw_only=True):
    replicated_jobs: Annotated[tuple[ReplicatedJob, ...], Meta(min_length=1)]
    ttl_seconds_after_finished: int | None = None


class JobSet(NumberedReplicas, frozen=True, rename="camel", kw_only=True):
    name: ClassVar[str] = "JobSet"
    plural: ClassVar[str] = "jobsets"
    installed_by: ClassVar[str] = "JobSet"
    versions: ClassVar[tuple[str, ...]] = ("jobset.x-k8s.io/v1alpha2",)
    only_role: ClassVar[tuple[str | int, ...]] = ("replicatedJobs", 0, "template", "spec")
    completion_mode: ClassVar[str] = "Indexed"
    is_run_by_child: ClassVar[bool] = True
    processes_field: ClassVar[str] = "spec.replicatedJobs[0].template.spec.template.spec.containers"

    spec: JobSetSpec

    @property
    def indexed(self) -> IndexedJobSpec:
        return self.spec.replicated_jobs[0].template.spec

    def check(self) -> None:
        jobs, field = self.spec.replicated_jobs, "spec.replicatedJobs"
        if len(jobs) > 1:
            names = ", ".join(each.name[:60] for each in jobs[:4])
            raise InvalidField(
                field,
                f"{field}: expected one, got {len(jobs)} ({names}): voda cannot tell which of them it is to resize",
            )
        if jobs[0].replicas not in (None, 1):
            field = f"{field}[0].replicas"
            raise InvalidField(
                field, f"{field}: expected 1, got {jobs[0].replicas}: voda resizes one Job, by its parallelism"
            )
        super().check()

    def kubernetes_warnings(self, converted: Mapping[str, Any], job: JobSpec) -> Iterator[FieldWarning]:
        yield from super().kubernetes_warnings(converted, job)
        if job.max_replicas > 1 and runs_agents(self) and not _has_rendezvous(self):
            host = f"{job.name}-{self.spec.replicated_jobs[0].name}-0-0.{job.name}.{job.namespace}"
            message = (
                "missing: torchrun cannot meet its peers, and a JobSet keeps its variables: write it into the manifest,"
                f" as {host}.svc.cluster.local:29500 (docs/kubernetes-jobs.md)"
            )
            field = f"{_container_path(self)}.env[{ENDPOINT}]"
            yield FieldWarning(field=field, message=message)
        yield from shared_store_warning(self, job, _container_path(self))
        size = variables(self).get(NNODES) or ""
        if job.is_elastic and runs_agents(self) and size.isdecimal() and not _is_told(self, "--nnodes"):
            bounds = f"{job.min_replicas}:{job.max_replicas}"
            message = (
                f"torchrun waits for {size} replicas, however many there are, and takes part in no resize: give its"
                f" command --nnodes={bounds}, which wins over what Kubeflow Trainer writes here"
            )
            yield FieldWarning(field=f"{_container_path(self)}.env[{NNODES}]", message=message)


def _container_path(job: JobSet) -> str:
    return f"{job.path(ROLE)}.template.spec.containers[{job.main_container(ROLE)[0]}]"


def _has_rendezvous(job: JobSet) -> bool:
    return ENDPOINT in variables(job) or any(_is_told(job, flag) for flag in _RENDEZVOUS)


def _is_told(job: JobSet, flag: str) -> bool:
    """Return whether the command of the container that trains has the flag."""
    _, container = job.main_container(ROLE)
    return any(flag in word for word in (*(container.command or ()), *(container.args or ())))
