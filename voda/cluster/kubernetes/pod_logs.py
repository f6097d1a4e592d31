"""Reads what the pods of jobs print, by pods/log of the API server, which asks the pods' kubelets.

Rules: a replica is a pod, by its name; while a job lasts, its output goes on with the pod's next container and with
the next pod of that name. Where output cannot be read, the output itself says so in one sentence that begins with
`voda:`. A kubelet keeps only a container's last log files: older output is gone.
"""

import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing
from datetime import UTC, datetime
from typing import Final

from voda.backoff import delay_s
from voda.cluster.kubernetes.kinds.operator_pods import index
from voda.cluster.kubernetes.objects import Pod
from voda.cluster.port import EVERY_LINE, LineTimes
from voda.domain.errors import InvalidInput, VodaError
from voda.kubernetes_client.api import Api
from voda.text import Tail

_SILENCE_S: Final = 15.0
_FIRST_PAUSE_S: Final = 0.25
_LONGEST_PAUSE_S: Final = 5.0
_SETTLED_S: Final = 1.0
"""An output that ends means a container that ended: the pod's status gets this long to say so."""
_LINE_BYTES: Final = 32
"""A line is rarely shorter: the first request is for as many lines as would then be needed."""
_NAMED: Final = 8
_WORKER: Final = re.compile(r"-worker-\d{1,9}$")
"""Such a name comes back with the next pod, as does that of a master; those of launchers and of Jobs' pods never do."""
_CURRENT: Final[Mapping[str, str]] = {}
_PREVIOUS: Final[Mapping[str, str]] = {"previous": "true"}
_FROM_NOW: Final[Mapping[str, str]] = {"tailLines": "0"}


class KubernetesOutputs:
    """An adapter of the Outputs port; voda needs the right to get pods/log.

    `pods` returns those of a job that are there; `has_ended` says whether nothing of a job will run any more.
    """

    def __init__(
        self,
        api: Api,
        *,
        pods: Callable[[str], Sequence[Pod]],
        has_ended: Callable[[str], bool],
        times: LineTimes = EVERY_LINE,
    ) -> None:
        self._api = api
        self._pods = pods
        self._has_ended = has_ended
        self._times: Mapping[str, str] = {"timestamps": "true"} if times.are_shown else {}
        if times.since is not None:
            since = datetime.fromtimestamp(max(times.since, 0.0), UTC)
            self._times = {**self._times, "sinceTime": f"{since:%Y-%m-%dT%H:%M:%SZ}"}

    async def replicas(self, job_id: str) -> Sequence[str]:
        return self._names(job_id)

    async def read(
        self,
        job_id: str,
        replica: str,
        *,
        tail_bytes: int | None,
        follow: bool,
        times: LineTimes = EVERY_LINE,
    ) -> AsyncIterator[bytes]:
        known = self._names(job_id)
        if replica not in known:
            names = ", ".join(known[:_NAMED]) + (", ..." if len(known) > _NAMED else "")
            raise InvalidInput(
                f"job {job_id} has no output of a replica {replica[:80]!r}: expected one of {names or '(none)'}"
            )
        reader = KubernetesOutputs(self._api, pods=self._pods, has_ended=self._has_ended, times=times)
        printed = reader._follow if follow else reader._once
        async with aclosing(printed(job_id, replica, tail_bytes)) as pieces:
            async for piece in pieces:
                yield piece

    def _names(self, job_id: str) -> Sequence[str]:
        return tuple(pod.metadata.name for pod in most_telling_first(self._pods(job_id)))

    def _find(self, job_id: str, replica: str) -> Pod | None:
        return next((pod for pod in self._pods(job_id) if pod.metadata.name == replica), None)

    async def _once(self, job_id: str, replica: str, tail_bytes: int | None) -> AsyncGenerator[bytes, None]:
        """Yield what a pod has printed; by its container before, where the current one has printed nothing."""
        pod = self._find(job_id, replica)
        if pod is None:
            return
        complaint = ""
        for container in (_CURRENT, _PREVIOUS) if _restarts(pod) else (_CURRENT,):
            printed = False
            try:
                async with aclosing(self._printed(pod, container, tail_bytes)) as pieces:
                    async for piece in pieces:
                        printed = True
                        yield piece
            except VodaError as wrong:
                complaint = complaint or str(wrong)
            if printed:
                break
        if complaint and not (printed and container is _PREVIOUS):
            yield _sentence(pod, complaint)

    async def _printed(
        self, pod: Pod, container: Mapping[str, str], tail_bytes: int | None
    ) -> AsyncGenerator[bytes, None]:
        """Yield what one container has printed so far, or the end of it."""
        if tail_bytes is not None:
            tail = await self._tail(pod, container, tail_bytes)
            if text := tail.text():
                yield text
            return
        async with aclosing(self._log(pod, container, silence_s=_SILENCE_S)) as pieces:
            async for piece in pieces:
                yield piece

    async def _tail(self, pod: Pod, container: Mapping[str, str], tail_bytes: int) -> Tail:
        """Return the end of a container's output.

        The API counts lines and not bytes: the first request is for as many as are likely to suffice, the second one
        for as many as are sure to.
        """
        for lines in (tail_bytes // _LINE_BYTES + 1, tail_bytes + 1):
            tail = Tail(tail_bytes)
            query = {**container, "tailLines": str(lines)}
            async with aclosing(self._log(pod, query, silence_s=_SILENCE_S)) as pieces:
                async for piece in pieces:
                    tail.add(piece)
            if tail.size_bytes > tail_bytes or tail.lines < lines:
                break
        return tail

    async def _follow(self, job_id: str, replica: str, tail_bytes: int | None) -> AsyncGenerator[bytes, None]:
        """Yield what a replica prints until its job has ended, container after container and pod after pod."""
        read_of, written, looks = "", b"", 1
        while True:
            # Before the read: what is printed after the last look and before the end is read by one more look.
            is_over = self._has_ended(job_id)
            pod = self._find(job_id, replica)
            if pod is not None and not (read_of == _run(pod) and (pod.is_over or _pause_s(looks) < _SETTLED_S)):
                try:
                    begin = await self._beginning(pod, tail_bytes, read_of)
                    async with aclosing(self._log(pod, {**begin, "follow": "true"}, silence_s=None)) as pieces:
                        async for piece in pieces:
                            read_of, looks = _run(pod), 1
                            yield piece
                    read_of = _run(pod)
                except VodaError as wrong:
                    complaint = _sentence(pod, str(wrong))
                    if complaint != written and (is_over or not _is_awaited(pod)):
                        written = complaint
                        yield complaint
            if is_over or self._is_replaced(job_id, replica, pod):
                return
            await asyncio.sleep(_pause_s(looks))
            looks += 1

    async def _beginning(self, pod: Pod, tail_bytes: int | None, read_of: str) -> Mapping[str, str]:
        """Return from where on to follow: the end of what is there at first, later on what is new."""
        if read_of:
            return _CURRENT if read_of != _run(pod) else _FROM_NOW
        if tail_bytes is None:
            return _CURRENT
        tail = await self._tail(pod, _CURRENT, tail_bytes)
        return {"tailLines": str(len(tail.text().splitlines()))}

    def _is_replaced(self, job_id: str, replica: str, pod: Pod | None) -> bool:
        """Say whether another pod has taken over, where its own name never comes back."""
        if _WORKER.search(replica) or (pod is not None and not pod.is_over):
            return False
        newest = next(iter(self._names(job_id)), replica)
        return newest != replica and _WORKER.search(newest) is None

    def _log(self, pod: Pod, query: Mapping[str, str], *, silence_s: float | None) -> AsyncGenerator[bytes, None]:
        # Sidecars that somebody injects come after the job's own container.
        container = {"container": pod.spec.containers[0].name} if pod.spec.containers else {}
        return self._api.text(f"{pod.path}/log", {**container, **self._times, **query}, silence_s=silence_s)


def most_telling_first(pods: Sequence[Pod]) -> Sequence[Pod]:
    """Return a job's pods: launchers (the youngest first) or the master, then workers by index."""
    # Sorted twice, for launchers go by age, and falling.
    return sorted(sorted(pods, key=lambda pod: pod.metadata.creation_timestamp, reverse=True), key=_rank)


def _pause_s(looks: int) -> float:
    return delay_s(looks, first_s=_FIRST_PAUSE_S, longest_s=_LONGEST_PAUSE_S)


def _rank(pod: Pod) -> tuple[int, bool]:
    number = index(pod)
    # Until voda has written its annotations, master and worker both count from 0.
    return -1 if number is None else number, bool(_WORKER.search(pod.metadata.name))


def _restarts(pod: Pod) -> int:
    name = pod.spec.containers[0].name if pod.spec.containers else ""
    return next((each.restart_count for each in pod.status.container_statuses if each.name == name), 0)


def _run(pod: Pod) -> str:
    """Return what distinguishes one run of a pod's container from the next."""
    return f"{pod.metadata.uid}/{_restarts(pod)}"


def _is_awaited(pod: Pod) -> bool:
    """Whether there can be no output yet."""
    return pod.status.phase in ("", "Pending")


def _sentence(pod: Pod, complaint: str) -> bytes:
    return f"voda: the output of pod {pod.metadata.key} cannot be read: {complaint}\n".encode()
