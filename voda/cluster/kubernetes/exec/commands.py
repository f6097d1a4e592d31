"""Runs commands in the pods of jobs, by pods/exec of the API server, which asks the pods' kubelets.

Rules: a command runs in the container that trains, with its environment and rights, of a pod that an up-to-date mirror
shows to run as a replica of the job. Labels do not prove that, since whoever may write them would enter pods by voda's
right: a replica has the name that the job's operator gives, which nobody can change, and the owner that the log knows.
The API server takes names alone, no uids: where a pod is replaced within the moment that the mirror is behind, the
command runs in the next pod of that name.
"""

import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Final, Protocol

from voda.cluster.kubernetes.exec.session import PROTOCOL, PodCommand
from voda.cluster.kubernetes.kinds.operator_pods import index, owner_name
from voda.cluster.kubernetes.objects import Pod
from voda.cluster.kubernetes.pod_logs import most_telling_first
from voda.cluster.port import CommandRequest
from voda.domain.errors import ClusterUnavailable, InvalidInput, NotAllowed, WrongState
from voda.domain.job import Job, JobSpec
from voda.kinds.registry import KINDS
from voda.kubernetes_client.api import Api
from voda.kubernetes_client.errors import Absent, Rejected
from voda.manifests.conversion import typed_manifest

_MOST_BYTES: Final = 256 << 10
"""Of a command's words: they are a part of the request's address, which has a megabyte at most."""
_FORBIDDEN: Final = 403
_LAUNCHER: Final = re.compile(r"-launcher(-[a-z0-9]{5})?")


class PodMirror(Protocol):
    """The pods of jobs, as the cluster shows them (see ClusterMirror)."""

    @property
    def api(self) -> Api: ...

    @property
    def is_synced(self) -> bool: ...

    @property
    def failure(self) -> str: ...

    def pods_of(self, job_id: str) -> Sequence[Pod]: ...


class KubernetesCommands:
    """An adapter of the RemoteCommands port; voda needs the rights to get and to create pods/exec.

    `job` returns a live job of the log.
    """

    def __init__(self, mirror: PodMirror, job: Callable[[str], Job | None]) -> None:
        self._mirror = mirror
        self._job = job

    async def replicas(self, job_id: str) -> Sequence[str]:
        return tuple(self._running(job_id))

    @asynccontextmanager
    async def run(self, job_id: str, replica: str, request: CommandRequest) -> AsyncIterator[PodCommand]:
        job, pod = self._job(job_id), self._running(job_id).get(replica)
        if job is None or pod is None:
            raise WrongState(f"job {job_id}: its replica {replica} does not run any more")
        if sum(len(word.encode()) for word in request.argv) > _MOST_BYTES:
            raise InvalidInput(
                f"the command has more than {_MOST_BYTES >> 10} KiB: give it such data by its standard input, with -i"
            )
        words = {"command": request.argv}
        query = _query(request, container_of(pod, job.spec))
        try:
            async with self._mirror.api.websocket(f"{pod.path}/exec", query, PROTOCOL, lists=words) as opened:
                command = PodCommand(opened, request)
                if request.terminal is not None:
                    await command.resize(request.terminal)
                try:
                    yield command
                finally:
                    await command.leave()
        except Absent as gone:
            raise WrongState(f"job {job_id}: its replica {replica} has just ended") from gone
        except Rejected as refused:
            raise _refusal(refused) from refused

    def _running(self, job_id: str) -> Mapping[str, Pod]:
        """Return the pods of a job whose container that trains runs, by name."""
        if not self._mirror.is_synced or self._mirror.failure:
            raise ClusterUnavailable(self._mirror.failure or "this replica is still reading the cluster: try again")
        if (job := self._job(job_id)) is None:
            return {}
        pods = [pod for pod in self._mirror.pods_of(job_id) if is_replica(job, pod) and is_running(pod, job.spec)]
        return {pod.metadata.name: pod for pod in most_telling_first(pods)}


def is_replica(job: Job, pod: Pod) -> bool:
    """Say whether a pod of a job's namespace is a replica of the job, or its launcher."""
    name, owners = job.spec.name or job.spec.job_id, pod.metadata.owner_references
    if owner_name(pod) != name:
        return False
    if index(pod) is None and _LAUNCHER.fullmatch(pod.metadata.name.removeprefix(name)) is None:
        return False
    # The owner of a launcher may be a Job in between.
    has_job_between = index(pod) is None or KINDS[job.spec.kind].is_run_by_child
    return not job.uid or any(owner.uid == job.uid or (has_job_between and owner.kind == "Job") for owner in owners)


def container_of(pod: Pod, spec: JobSpec) -> str:
    """Return the name of the container that trains; sidecars that somebody injects come after it."""
    names = [each.name for each in pod.spec.containers]
    chosen = typed_manifest(spec.manifest).main_container_name if spec.manifest is not None else ""
    return chosen if chosen in names else next(iter(names), "")


def is_running(pod: Pod, spec: JobSpec) -> bool:
    """Say whether the container of a pod that trains runs."""
    container = container_of(pod, spec)
    states = [each.state for each in pod.status.container_statuses if each.name == container]
    return pod.status.phase == "Running" and all(each.waiting is None and each.terminated is None for each in states)


def _query(request: CommandRequest, container: str) -> Mapping[str, str]:
    has_terminal = request.terminal is not None
    return {
        "container": container,
        "stdin": _flag(request.has_input),
        "stdout": "true",
        # Of a terminal there is one output.
        "stderr": _flag(not has_terminal),
        "tty": _flag(has_terminal),
    }


def _flag(is_so: bool) -> str:
    return "true" if is_so else "false"


def _refusal(refused: Rejected) -> Exception:
    if refused.code != _FORBIDDEN:
        return refused
    return NotAllowed(
        "voda has no right to run commands in pods of this cluster, which its administrator may grant by the chart's"
        f" value exec.enabled: {refused}"
    )
