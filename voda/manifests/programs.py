"""What the replicas of a manifest run, and how their failures are treated.

Rule: the operators' defaults are filled in here and nowhere else. A manifest that `parse` accepted never fails here.
"""

from collections.abc import Mapping
from typing import Any

from voda.manifests.parsed import POD_NAME, ElasticPolicy, Program, RunPolicy
from voda.manifests.read.schema import Container, Elastic, EnvVar, MPIJob, Policy, PyTorchJob, Replica, Shape, shape_of

WORKING_DIR = "voda.dev/working-dir"
DEFAULT_BACKOFF_LIMIT = 6
"""Of a Kubernetes Job. v1 jobs have no limit of their own; voda does not restart them for ever."""
DEFAULT_GRACE_S = 30.0


def program(manifest: Mapping[str, Any], role: str) -> Program | None:
    """Return what a replica of a role runs: launcher, worker or master; None if the manifest has no such role."""
    job = shape_of(manifest)
    replica = job.roles.get(role.capitalize())
    if replica is None:
        return None
    _, container = main_container(job, replica)
    grace_s = replica.template.spec.termination_grace_period_seconds
    return Program(
        role=role,
        argv=(container.command or ()) + (container.args or ()),
        env=env_pairs(container, job.metadata.namespace or "default"),
        working_dir=container.working_dir or "",
        grace_s=DEFAULT_GRACE_S if grace_s is None else float(grace_s),
    )


def run_policy(manifest: Mapping[str, Any]) -> RunPolicy:
    """Return how failures and ends are treated."""
    job = shape_of(manifest)
    policy = job.spec.run_policy or Policy()
    restart_policy = {
        name.lower(): replica.restart_policy or _default_restart_policy(job, name)
        for name, replica in job.roles.items()
    }
    clean = policy.clean_pod_policy or (job.spec.clean_pod_policy if isinstance(job, MPIJob) else None)
    return RunPolicy(
        backoff_limit=_backoff_limit(job, policy, restart_policy),
        active_deadline_s=_seconds(policy.active_deadline_seconds),
        ttl_after_finished_s=_seconds(policy.ttl_seconds_after_finished),
        clean_pod_policy=clean or "None",
        restart_policy=restart_policy,
        is_suspended=bool(policy.suspend),
    )


def elastic_policy(manifest: Mapping[str, Any]) -> ElasticPolicy | None:
    """Return how the agents of a PyTorchJob find each other; None for an MPIJob and without elasticPolicy."""
    job = shape_of(manifest)
    if not isinstance(job, PyTorchJob) or job.spec.elastic_policy is None:
        return None
    elastic = job.spec.elastic_policy
    least, most = elastic_limits(elastic, replica_count(job))
    return ElasticPolicy(
        min_replicas=least,
        max_replicas=most,
        rdzv_backend=elastic.rdzv_backend or "c10d",
        rdzv_host=elastic.rdzv_host or "",
        rdzv_port=elastic.rdzv_port or 0,
        rdzv_id=elastic.rdzv_id or "",
        rdzv_conf=tuple((pair.key, pair.value) for pair in elastic.rdzv_conf or ()),
        max_restarts=elastic.max_restarts,
        nproc_per_node=torch_processes(job),
        is_standalone=bool(elastic.standalone),
    )


def slots_per_worker(manifest: Mapping[str, Any]) -> int:
    """Return the slots of one worker in the host list of an MPIJob; 1 for other kinds."""
    job = shape_of(manifest)
    return (job.spec.slots_per_worker or 1) if isinstance(job, MPIJob) else 1


def mpi_implementation(manifest: Mapping[str, Any]) -> str:
    """Return OpenMPI, Intel or MPICH, which decides how a host list is written; empty for other kinds."""
    job = shape_of(manifest)
    return (job.spec.mpi_implementation or "OpenMPI") if isinstance(job, MPIJob) else ""


def nproc_per_node(manifest: Mapping[str, Any]) -> str:
    """Return the processes each torch agent starts: auto, cpu, gpu or a number; 1 for an MPIJob."""
    job = shape_of(manifest)
    return torch_processes(job) if isinstance(job, PyTorchJob) else "1"


def worker_count(manifest: Mapping[str, Any]) -> int:
    """Return how many workers the manifest itself asks for, a Master not counted."""
    worker = shape_of(manifest).roles.get("Worker")
    return 0 if worker is None else _count(worker)


def has_master(manifest: Mapping[str, Any]) -> bool:
    """Say whether replica 0 is a PyTorchJob's Master: then replica i is worker i - 1."""
    return "Master" in shape_of(manifest).roles


def working_dir_annotation(manifest: Mapping[str, Any]) -> str:
    """Return the folder that the annotation voda.dev/working-dir names; empty without one."""
    return (shape_of(manifest).metadata.annotations or {}).get(WORKING_DIR, "")


def replica_count(job: Shape) -> int:
    """Return how many replicas the manifest itself asks for, a Master counted."""
    counted = ("Master", "Worker")
    return sum(_count(replica) for name, replica in job.roles.items() if name in counted)


def elastic_limits(elastic: Elastic, replicas: int) -> tuple[int, int]:
    """Return least and most replicas of an elasticPolicy: what is missing is as the other, or as replicas."""
    least, most = elastic.min_replicas, elastic.max_replicas
    if least is None:
        least = replicas if most is None else most
    return least, least if most is None else most


def main_container(job: Shape, replica: Replica) -> tuple[int, Container]:
    """Return the container that trains, and its index: by name where the operator goes by name, else the first."""
    containers = replica.template.spec.containers
    wanted = wanted_container(job)
    return next(((place, each) for place, each in enumerate(containers) if each.name == wanted), (0, containers[0]))


def wanted_container(job: Shape) -> str:
    """Return the name the container that trains must have; empty where any name will do."""
    return "pytorch" if isinstance(job, PyTorchJob) else job.spec.main_container or ""


def env_pairs(container: Container, namespace: str) -> tuple[tuple[str, str], ...]:
    """Return the variables of a container whose values can be known."""
    found = ((each.name, known_value(each, namespace)) for each in container.env or ())
    return tuple((name, value) for name, value in found if value is not None)


def known_value(variable: EnvVar, namespace: str) -> str | None:
    """Return a variable's value before expansion; None if it lies in something there is no knowing here."""
    if variable.value_from is None:
        return variable.value or ""
    field = variable.value_from.field_ref
    known = {"metadata.namespace": namespace, "metadata.name": f"$({POD_NAME})"}
    return known.get(field.field_path) if field is not None else None


def torch_processes(job: PyTorchJob) -> str:
    """Return the processes each torch agent starts: auto, cpu, gpu or a number."""
    elastic = job.spec.elastic_policy
    deprecated = elastic.n_proc_per_node if elastic is not None else None
    return str(job.spec.nproc_per_node or deprecated or "auto")


def _count(replica: Replica) -> int:
    return 1 if replica.replicas is None else replica.replicas


def _default_restart_policy(job: Shape, role: str) -> str:
    if isinstance(job, PyTorchJob) or (job.has_v2 and role == "Launcher"):
        return "OnFailure"
    return "Never"


def _backoff_limit(job: Shape, policy: Policy, restart_policy: Mapping[str, str]) -> int:
    # v2 runs its launcher as a Kubernetes Job, which tries again whatever the pod's own restartPolicy says.
    if not job.has_v2 and set(restart_policy.values()) == {"Never"}:
        return 0
    return DEFAULT_BACKOFF_LIMIT if policy.backoff_limit is None else policy.backoff_limit


def _seconds(value: int | None) -> float | None:
    return None if value is None else float(value)
