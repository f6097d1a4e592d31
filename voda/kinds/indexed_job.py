"""Job of batch/v1: Kubernetes runs it itself, without any operator.

Rules: parallelism and completions are one number, the replicas, because only then can the Job be resized, and only one
with numbered replicas (completionMode Indexed) can; any other is a rigid job of one replica. What an operator's job has
in `runPolicy`, a Job has in `spec` itself; a program that torchrun starts meets its peers at replica 0.
"""

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Final, Literal

from voda.domain.errors import InvalidField
from voda.domain.job import JobSpec
from voda.kinds.base import (
    FieldWarning,
    JobManifest,
    KindSpec,
    OwnBounds,
    field_warnings,
    refuse_other,
    role_mappings,
)
from voda.kinds.launcher import starts_agents
from voda.kinds.pod_template import (
    KUBE_SCHEDULER,
    MOST_GPUS,
    UNSHARED_STORE,
    PodTemplate,
    RoleTemplate,
    TorchElasticPolicy,
)

ROLE: Final = "Worker"
ENDPOINT: Final = "PET_RDZV_ENDPOINT"
NNODES: Final = "PET_NNODES"
NODE_RANK: Final = "PET_NODE_RANK"
_ONE_MACHINE: Final = "not read: the replicas meet at one port of this machine"
_NOT_LOCAL: Final = {
    "successPolicy": "not read: the job has completed when all of its replicas have",
    "podFailurePolicy": "not read: replicas are started again as backoffLimit says",
    "backoffLimitPerIndex": "not read: backoffLimit counts the failures of all replicas together",
}


class IndexedJobSpec(KindSpec, frozen=True, rename="camel", kw_only=True):
    template: PodTemplate
    parallelism: int | None = None
    completions: int | None = None
    completion_mode: str | None = None
    backoff_limit: int | None = None
    backoff_limit_per_index: int | None = None
    active_deadline_seconds: int | None = None
    ttl_seconds_after_finished: int | None = None


class NumberedReplicas(JobManifest, frozen=True, rename="camel", kw_only=True):
    """What all kinds share whose replicas are the pods of one Indexed Job."""

    replica_specs: ClassVar[str] = ""
    run_policy_field: ClassVar[str] = ""
    replicas_field: ClassVar[str] = "parallelism"
    has_lasting_success: ClassVar[bool] = True
    role_names: ClassVar[tuple[str, ...]] = (ROLE,)
    placed_roles: ClassVar[tuple[str, ...]] = (ROLE,)
    has_anchor: ClassVar[bool] = True
    completion_mode: ClassVar[str] = "NonIndexed"
    """Of a Job that names none."""
    runs_plain: ClassVar[bool] = False
    """Whether a Job of one pod need not be Indexed."""
    cluster_variables: ClassVar[frozenset[str]] = frozenset(
        {ENDPOINT, NNODES, NODE_RANK, "PET_RDZV_BACKEND", "PET_RDZV_ID", "PET_RDZV_CONF", "PET_MAX_RESTARTS"}
    )
    index_variable: ClassVar[str] = "JOB_COMPLETION_INDEX"

    @property
    @abstractmethod
    def indexed(self) -> IndexedJobSpec:
        """The `spec` of the Indexed Job."""

    @property
    def roles(self) -> dict[str, RoleTemplate]:
        return {ROLE: RoleTemplate(template=self.indexed.template, replicas=_size(self.indexed))}

    @property
    def processes(self) -> int | None:
        """Processes of a replica, as PET_NPROC_PER_NODE has them; None: one for each of its GPUs."""
        value = variables(self).get("PET_NPROC_PER_NODE") or ""
        is_count = value.isascii() and value.isdecimal() and len(value) < 6 and 1 <= int(value) <= MOST_GPUS
        return int(value) if is_count else None

    @property
    def always_retries(self) -> bool:
        return True

    def own_bounds(self) -> OwnBounds | None:
        """Return the bounds that torchrun is told, such as PET_NNODES 1:8."""
        least, _, most = (variables(self).get(NNODES) or "").partition(":")
        if not all(each.isascii() and each.isdecimal() and len(each) < 6 for each in (least, most)):
            return None
        path = f"{self.path(ROLE)}.template.spec.containers[{self.main_container(ROLE)[0]}].env[{NNODES}]"
        return OwnBounds(min_replicas=int(least), min_path=path, max_replicas=int(most), max_path=path)

    @property
    def is_rigid(self) -> bool:
        return (self.indexed.completion_mode or self.completion_mode) != "Indexed"

    def elastic_policy(self) -> TorchElasticPolicy | None:
        """Return how many restarts the agents have, where the manifest says it."""
        restarts = variables(self).get("PET_MAX_RESTARTS") or ""
        if not (restarts.isascii() and restarts.isdecimal() and len(restarts) < 10):
            return None
        bounds, size = self.own_bounds(), _size(self.indexed)
        return TorchElasticPolicy(
            min_replicas=bounds.min_replicas if bounds else size,
            max_replicas=bounds.max_replicas if bounds else size,
            max_restarts=int(restarts),
        )

    def check(self) -> None:
        spec, path = self.indexed, self.path(ROLE)
        if spec.run_policy is not None:
            field = f"{path}.runPolicy"
            raise InvalidField(field, f"{field}: a Job has none: write backoffLimit and the like into spec itself")
        mode = spec.completion_mode or self.completion_mode
        refuse_other(f"{path}.completionMode", mode, ("Indexed", "NonIndexed"))
        # One without completions goes on until all its pods agree.
        is_alone = (spec.parallelism, spec.completions) in ((None, None), (1, 1), (None, 1))
        if self.is_rigid and not (self.runs_plain and is_alone):
            field = f"{path}.completionMode"
            raise InvalidField(
                field,
                f"{field}: expected Indexed, got {mode!r}: only a Job with numbered replicas can have other than one"
                " (parallelism: 1, completions: 1), and be resized",
            )
        if None not in (spec.parallelism, spec.completions) and spec.parallelism != spec.completions:
            field = f"{path}.completions"
            raise InvalidField(
                field,
                f"{field}: expected {spec.parallelism}, as parallelism, got {spec.completions}: only then can the Job"
                " be resized while it runs",
            )
        policy = spec.template.spec.restart_policy
        refuse_other(f"{path}.template.spec.restartPolicy", policy, ("Never", "OnFailure"))

    def kubernetes_warnings(self, converted: Mapping[str, Any], job: JobSpec) -> Iterator[FieldWarning]:
        pod, path = role_mappings(self, converted["spec"])[ROLE]["template"]["spec"], f"{self.path(ROLE)}.template.spec"
        if pod.get("nodeName"):
            field = f"{path}.nodeName"
            raise InvalidField(
                field, f"{field}: expected none, for voda places the replicas: name nodes by nodeSelector"
            )
        if pod.get("schedulerName") not in KUBE_SCHEDULER:
            message = (
                f"kept where the {self.kind} is there already, for nobody can change it: its replicas wait until a"
                f" scheduler of this name binds them; left out of a {self.kind} that voda creates"
            )
            yield FieldWarning(field=f"{path}.schedulerName", message=message)


class IndexedJob(NumberedReplicas, frozen=True, rename="camel", kw_only=True):
    name: ClassVar[str] = "Job"
    plural: ClassVar[str] = "jobs"
    versions: ClassVar[tuple[str, ...]] = ("batch/v1",)
    local_launch: ClassVar[Literal["mpi", "torch"] | None] = "torch"
    local_roles: ClassVar[tuple[str, ...]] = (ROLE,)
    processes_field: ClassVar[str] = "spec.template.spec.containers"
    runs_plain: ClassVar[bool] = True

    spec: IndexedJobSpec

    @property
    def indexed(self) -> IndexedJobSpec:
        return self.spec

    def local_warnings(self, spec: Mapping[str, Any]) -> Iterator[FieldWarning]:
        yield from field_warnings(spec, "spec", _NOT_LOCAL)
        index, container = self.main_container(ROLE)
        for place, variable in enumerate(container.env or ()):
            if variable.name in self.cluster_variables:
                field = f"spec.template.spec.containers[{index}].env[{place}]"
                yield FieldWarning(field=field, message=_ONE_MACHINE)

    def kubernetes_warnings(self, converted: Mapping[str, Any], job: JobSpec) -> Iterator[FieldWarning]:
        yield from super().kubernetes_warnings(converted, job)
        if (strange := _elsewhere(self, job)) and job.max_replicas > 1:
            message = (
                f"names {strange}, and replica 0 of this job is {job.name or job.job_id}-0: its replicas cannot meet"
                " there; leave it out where voda makes the Job, or write this job's name"
            )
            yield FieldWarning(field=f"spec.template.spec.containers[0].env[{ENDPOINT}]", message=message)
        # A Job that a server has made names its pods; voda adds what torchrun needs to those that it makes itself.
        is_there = "selector" in converted["spec"]
        if is_there:
            yield from shared_store_warning(self, job, "spec.template.spec.containers[0]")
        if is_there and runs_agents(self) and job.max_replicas > 1 and ENDPOINT not in variables(self):
            message = (
                "missing: torchrun cannot meet its peers, and voda cannot add it, because a Job that is there keeps its"
                " variables: write it and the others into the manifest, or use voda submit (docs/kubernetes-jobs.md)"
            )
            yield FieldWarning(field=f"spec.template.spec.containers[0].env[{ENDPOINT}]", message=message)


def _elsewhere(job: NumberedReplicas, spec: JobSpec) -> str:
    """Return the host at which replicas look for a replica 0 that is of another job; empty where it is none."""
    host = (variables(job).get(ENDPOINT) or "").partition(":")[0]
    replica, _, domain = host.partition(".")
    is_pod = domain.endswith(".svc.cluster.local") and replica.endswith("-0") and "$(" not in host
    return host if is_pod and replica != f"{spec.name or spec.job_id}-0" else ""


def shared_store_warning(job: NumberedReplicas, spec: JobSpec, container: str) -> Iterator[FieldWarning]:
    """Yield a warning of agents of torch whose store voda cannot keep apart from their program's."""
    _, program = job.main_container(ROLE)
    words = (*(program.command or ()), *(program.args or ()), variables(job).get("PET_RDZV_BACKEND") or "")
    is_dynamic = any("c10d" in word for word in words)
    if spec.max_replicas > 1 and is_dynamic and runs_agents(job) and UNSHARED_STORE not in variables(job):
        message = (
            "missing: from torch 2.4 on an agent that starts later than the others ends the job after a minute; add"
            f' {UNSHARED_STORE}: "1", for voda cannot change the variables of a {job.name} that is there'
        )
        yield FieldWarning(field=f"{container}.env[{UNSHARED_STORE}]", message=message)


def runs_agents(job: NumberedReplicas) -> bool:
    """Return whether torchrun or accelerate starts the program, so that its replicas have to meet."""
    _, container = job.main_container(ROLE)
    return starts_agents((*(container.command or ()), *(container.args or ())))


def _size(spec: IndexedJobSpec) -> int:
    return next((each for each in (spec.parallelism, spec.completions) if each is not None), 1)


def variables(job: NumberedReplicas) -> Mapping[str, str | None]:
    """Return the variables of the container that trains; None where they come from elsewhere."""
    _, container = job.main_container(ROLE)
    return {each.name: each.value for each in container.env or ()}
