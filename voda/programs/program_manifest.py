"""The manifest of a program that comes as a command: an MPIJob for mpirun, else a Job, or a PyTorchJob on one machine.

Rule: the program gets the words and values that the user wrote, whatever they hold: `$` is doubled, because a manifest
expands `$(NAME)`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, Final

from voda.domain.errors import InvalidInput
from voda.domain.sizes import JobSizes
from voda.programs.launchers import Launcher, has_fixed_size, launcher_in_command, torchrun_words

WORKING_DIR: Final = "voda.dev/working-dir"
"""Annotation: where a program begins whose container names no folder."""
LAUNCHER: Final = "voda.dev/launcher"
"""Annotation, `plain`: nothing starts the program in several processes, so a second worker would be a copy of it."""
ENV_FILE: Final = "voda.dev/env-from-file."
"""Begins the annotations that name a file each: voda.dev/env-from-file.WANDB_API_KEY: /home/ada/wandb.key."""

NICE: Final = "voda.dev/nice"
"""Annotation: how much a program gives way to others for the CPUs of one machine, 0 to 19."""
SCRIPT: Final = "voda.dev/script"
"""Annotation: the word of the command that is the program's script, such as train.py."""
KEPT_SCRIPT: Final = "voda.dev/kept-script"
"""Annotation: the file that runs in its place, which was kept when the job was submitted; see `kept_code`."""
INTERPRETER: Final = "voda.dev/interpreter"
"""Annotation: the Python that runs the program, as whoever submitted it on this machine was told."""

NVIDIA: Final = "nvidia.com/gpu"
SHARE_CORE: Final = "elasticgpu.io/gpu-core"
"""Resource: hundredths of the compute of a GPU."""
SHARE_MEMORY: Final = "elasticgpu.io/gpu-memory"
"""Resource: MiB of the memory of that GPU."""
MILLI_PER_CORE: Final = 10
_GRACE_S: Final = 20
"""For a checkpoint: below the 30 s after which a pod is killed."""
_ACCELERATE_AGENTS: Final = ("__multi_gpu", "__num_processes", "__config_file", "__use_")
"""Options with which accelerate may start agents for one GPU too, hyphens and underscores taken for the same."""
_DISCOVERY: Final = "/etc/mpi/discover_hosts.sh"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramJob:
    """A program and how it is to run."""

    name: str
    words: tuple[str, ...]
    """The command, one word or more."""
    launcher: Launcher
    least: int = 1
    """Workers."""
    most: int = 1
    sizes: JobSizes | None = None
    """At which it runs, of those from `least` to `most`; None: at each."""
    gpus_per_worker: int = 1
    """Also the processes of a worker, 1 at least; 0: a worker needs no GPU."""
    gpu_resource: str = NVIDIA
    """By which a pod asks for them."""
    gpu_milli: int = 0
    """Of a part of one GPU in place of whole ones: thousandths of its compute."""
    gpu_memory_mib: int = 0
    """Of such a part: memory of that GPU."""
    env: tuple[tuple[str, str], ...] = ()
    env_files: tuple[tuple[str, str], ...] = ()
    """Variables with the files on one machine that hold their values."""
    path: str = ""
    """Goes before the PATH of the machine, whose voda is found behind it; empty: that of the machine alone."""
    interpreter: str = ""
    """On this PATH; empty: not known."""
    working_dir: str = ""
    script: str = ""
    """The word that is its script, where that can be kept; empty: there is none."""
    kept_script: str = ""
    """The file that was kept of it, which runs in its place; empty: it runs as it is at each start."""
    time_limit_s: int = 0
    """0 = none."""
    memory: str = ""
    """Of a worker, as manifests have it; empty: no limit."""
    cpus: str = ""
    """Of a worker; empty: no limit."""
    retries: int | None = None
    """After failures; None: as the kind of its manifest has it."""
    nice: int | None = None
    """How much it gives way for CPUs, on one machine; None: as jobs do."""
    image: str = ""
    """Empty on one machine, which has no images."""


def program_manifest(job: ProgramJob) -> dict[str, Any]:
    """Return the manifest of a program.

    Raises:
        InvalidInput: the launcher cannot have that many workers.
    """
    if job.launcher == "plain" and job.most > 1:
        raise InvalidInput(f"a plain program has one worker, not {job.most}: --launcher mpirun or torchrun starts more")
    own = launcher_in_command(job.words)
    if job.launcher != "plain" and own not in (None, job.launcher):
        raise InvalidInput(f"the command begins with {job.words[0]} and --launcher says {job.launcher}: keep one")
    if job.launcher == "mpirun" and job.least < job.most and has_fixed_size(job.words):
        raise InvalidInput(
            f"{job.words[0]} cannot change its size: give --workers {job.most}, or leave {job.words[0]} out and add"
            " --launcher mpirun, so that voda starts the program anew at each size"
        )
    if job.launcher == "mpirun":
        return _mpi_job(job)
    if job.image and job.most > 1 and _trains_alone(job):
        raise InvalidInput(
            f"accelerate starts one process in a worker of one GPU, so that each of {job.most} workers would train"
            " alone: give --gpus-per-worker 2 or more, or submit torchrun and the script in its place"
        )
    # With an image it is for Kubernetes, which runs a Job without any operator.
    return _indexed_job(job) if job.image else _torch_job(job)


def _trains_alone(job: ProgramJob) -> bool:
    """Return whether accelerate starts the program without an agent, as it does where it sees one GPU and is told of no
    more processes (accelerate 1.15).
    """
    is_told = any(option in word.replace("-", "_") for word in job.words for option in _ACCELERATE_AGENTS)
    return PurePath(job.words[0]).name == "accelerate" and job.gpus_per_worker < 2 and not is_told


def interpreter_of(manifest: Mapping[str, Any] | None) -> str:
    """Return the Python that the manifest of a job says it runs with; empty: it says none."""
    metadata = (manifest or {}).get("metadata") or {}
    return str((metadata.get("annotations") or {}).get(INTERPRETER, ""))


def kept_script_of(manifest: Mapping[str, Any] | None) -> str:
    """Return the file that runs in place of a job's script, as its manifest says; empty: none does."""
    metadata = (manifest or {}).get("metadata") or {}
    return str((metadata.get("annotations") or {}).get(KEPT_SCRIPT, ""))


def with_kept_script(manifest: Mapping[str, Any], kept_script: str) -> Mapping[str, Any]:
    """Return the manifest of a program with another file in place of its script; empty: the script itself."""
    metadata = manifest.get("metadata") or {}
    annotations = {name: value for name, value in (metadata.get("annotations") or {}).items() if name != KEPT_SCRIPT}
    kept = {KEPT_SCRIPT: kept_script} if kept_script and SCRIPT in annotations else {}
    return {**manifest, "metadata": {**metadata, "annotations": {**annotations, **kept}}}


def _mpi_job(job: ProgramJob) -> dict[str, Any]:
    launcher = _container(job, "launcher", _mpi_words(job))
    worker = {"name": "worker", **_image(job), **_resources(job)}
    roles = {"Launcher": _role(launcher), "Worker": _role(worker, replicas=job.least)}
    spec = {"slotsPerWorker": _processes(job), **_run_policy(job), "mpiReplicaSpecs": roles}
    return _manifest(job, "kubeflow.org/v2beta1", "MPIJob", spec)


def _mpi_words(job: ProgramJob) -> list[str]:
    if launcher_in_command(job.words):
        return [*job.words]
    # ssh carries no variables to the workers of a cluster.
    variables = ["env", *(f"{name}={value}" for name, value in job.env)] if job.image and job.env else []
    program = [*variables, *job.words]
    if job.image and job.least == job.most:
        # Any image with MPI will do; `voda run` would need voda in it.
        return ["mpirun", *program]
    sizes = ["--min-np", str(job.least * _processes(job)), "--max-np", str(job.most * _processes(job))]
    if job.sizes is not None:
        sizes += ["--sizes", str(JobSizes.of(size * _processes(job) for size in job.sizes))]
    return ["voda", "run", *sizes, "--grace", str(_GRACE_S), "--host-discovery-script", _DISCOVERY, "--", *program]


def _indexed_job(job: ProgramJob) -> dict[str, Any]:
    container = {**_container(job, "main", _torch_words(job)), **_resources(job)}
    pod = {"restartPolicy": "Never", "containers": [container]}
    size = {"completionMode": "Indexed", "completions": job.least, "parallelism": job.least}
    return _manifest(job, "batch/v1", "Job", {**size, **_limits(job), "template": {"spec": pod}})


def _torch_words(job: ProgramJob) -> list[str]:
    is_started = job.launcher != "torchrun" or launcher_in_command(job.words)
    return [*job.words] if is_started else torchrun_words(job.words)


def _torch_job(job: ProgramJob) -> dict[str, Any]:
    container = {**_container(job, "pytorch", _torch_words(job)), **_resources(job)}
    roles = {"Worker": _role(container, replicas=job.least)}
    spec = {**_elastic_policy(job), "nprocPerNode": str(_processes(job)), **_run_policy(job)}
    return _manifest(job, "kubeflow.org/v1", "PyTorchJob", {**spec, "pytorchReplicaSpecs": roles})


def _elastic_policy(job: ProgramJob) -> dict[str, Any]:
    if job.least == job.most:
        return {}
    return {"elasticPolicy": {"minReplicas": job.least, "maxReplicas": job.most, "rdzvBackend": "c10d"}}


def _manifest(job: ProgramJob, version: str, kind: str, spec: Mapping[str, Any]) -> dict[str, Any]:
    sizes = {"voda.dev/min-replicas": str(job.least), "voda.dev/max-replicas": str(job.most)}
    sizes |= {"voda.dev/sizes": str(job.sizes)} if job.sizes is not None else {}
    files = {f"{ENV_FILE}{name}": path for name, path in job.env_files}
    launcher = {LAUNCHER: "plain"} if job.launcher == "plain" else {}
    interpreter = {INTERPRETER: job.interpreter} if job.interpreter else {}
    # Unlike a container's, of which a machine may have none, it has to be there.
    folder = {WORKING_DIR: job.working_dir} if job.working_dir and not job.image else {}
    kept = {KEPT_SCRIPT: job.kept_script} if job.kept_script else {}
    script = {SCRIPT: job.script, **kept} if job.script else {}
    script |= {NICE: str(job.nice)} if job.nice is not None else {}
    metadata = {"name": job.name, "annotations": {**sizes, **launcher, **interpreter, **folder, **script, **files}}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": {**spec}}


def _role(container: Mapping[str, Any], *, replicas: int = 1) -> dict[str, Any]:
    return {"replicas": replicas, "template": {"spec": {"containers": [{**container}]}}}


def _container(job: ProgramJob, name: str, words: list[str]) -> dict[str, Any]:
    found: dict[str, Any] = {"name": name, **_image(job), "command": [_literal(word) for word in words]}
    env = [{"name": name, "value": _literal(value)} for name, value in job.env]
    if job.path:
        env.insert(0, {"name": "PATH", "value": f"{_literal(job.path)}:$(PATH)"})
    if env:
        found["env"] = env
    if job.working_dir and job.image:
        found["workingDir"] = job.working_dir
    return found


def _image(job: ProgramJob) -> dict[str, Any]:
    # The end of its log says why it failed, where it writes no message of its own.
    return {"image": job.image, "terminationMessagePolicy": "FallbackToLogsOnError"} if job.image else {}


def _resources(job: ProgramJob) -> dict[str, Any]:
    limits = {SHARE_CORE: job.gpu_milli // MILLI_PER_CORE, SHARE_MEMORY: job.gpu_memory_mib}
    asked = {name: amount for name, amount in limits.items() if amount}
    host = {name: amount for name, amount in {"memory": job.memory, "cpu": job.cpus}.items() if amount}
    return {"resources": {"limits": {**(asked or {job.gpu_resource: job.gpus_per_worker}), **host}}}


def _run_policy(job: ProgramJob) -> dict[str, Any]:
    limits = _limits(job)
    return {"runPolicy": limits} if limits else {}


def _limits(job: ProgramJob) -> dict[str, Any]:
    retries = {"backoffLimit": job.retries} if job.retries is not None else {}
    return {**retries, **({"activeDeadlineSeconds": job.time_limit_s} if job.time_limit_s else {})}


def _processes(job: ProgramJob) -> int:
    return max(job.gpus_per_worker, 1)


def _literal(text: str) -> str:
    return text.replace("$", "$$")
