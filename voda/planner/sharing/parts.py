"""Which part of which GPU jobs have, and beside whom; each account of a node is read once."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Set
from functools import cached_property

from voda.domain.reasons.outcomes import Cause, GpuMate, HasPart
from voda.domain.shares import SharingNode


def part_of(shares: Mapping[str, SharingNode], job_id: str) -> HasPart | None:
    """Return which part of which GPU a job has."""
    return next(filter(None, (_NodeParts(name, account).of(job_id) for name, account in shares.items())), None)


class GpuParts:
    """The parts of many jobs."""

    def __init__(self, shares: Mapping[str, SharingNode]) -> None:
        self._nodes = {name: _NodeParts(name, account) for name, account in shares.items()}

    def of(self, node: str, job_id: str, *why: Cause) -> HasPart | None:
        """Return which part of which GPU of a node a job has, and why."""
        return self._nodes[node].of(job_id, *why) if node in self._nodes else None


class _NodeParts:
    def __init__(self, node: str, account: SharingNode) -> None:
        self._node = node
        self._pods = account.pods

    def of(self, job_id: str, *why: Cause) -> HasPart | None:
        if job_id not in self._pods:
            return None
        containers = self._pods[job_id].containers
        gpus = {gpu for share in containers.values() for gpu in share.gpus}
        beside = tuple(self._mates[uid] for uid in self._on(gpus) if uid != job_id)
        return HasPart(node=self._node, containers=containers, beside=beside, why=why)

    def _on(self, gpus: Set[int]) -> Iterable[str]:
        """Return the pods that have parts of GPUs, in the order of the account."""
        if len(gpus) == 1:
            return self._by_gpu[min(gpus)]
        return [uid for uid in self._pods if any(uid in self._by_gpu[gpu] for gpu in gpus)]

    @cached_property
    def _mates(self) -> Mapping[str, GpuMate]:
        return {uid: GpuMate(pod=pod.pod, containers=pod.containers) for uid, pod in self._pods.items()}

    @cached_property
    def _by_gpu(self) -> Mapping[int, Mapping[str, None]]:
        """GPU -> the pods that have parts of it, each once."""
        pods = defaultdict[int, dict[str, None]](dict)
        for uid, pod in self._pods.items():
            for share in pod.containers.values():
                for gpu in share.gpus:
                    pods[gpu][uid] = None
        return pods
