"""The port to the pods of the cluster, as far as scheduling them needs it."""

from collections.abc import Iterable, Mapping
from typing import Protocol

from voda.hived.pod_request import HivedPod


class ScheduledPods(Protocol):
    """The pods that the cluster shows; it may be a moment behind."""

    def uid(self, key: str) -> str:
        """Return the uid of the pod of that `namespace/name`; empty: there is none, or its processes have ended."""
        ...

    def bound(self) -> Iterable[tuple[HivedPod, str]]:
        """Return the pods with HiveD's annotations that have a node, and that node."""
        ...

    def pending(self) -> Iterable[HivedPod]:
        """Return the pods with HiveD's annotations that kube-scheduler has yet to place, the oldest first."""
        ...

    async def wake(self, key: str, uid: str, now: float) -> None:
        """Have kube-scheduler ask for a pending pod again, by a change of it; nothing where it is gone.

        Raises:
            VodaError: the cluster refuses it, or does not answer.
        """
        ...

    async def bind(self, key: str, uid: str, node: str, annotations: Mapping[str, str]) -> None:
        """Bind a pod to its node, with these annotations; nothing where it is bound there already.

        Raises:
            NotFound: the pod is gone, or another one has its name.
            WrongState: it is bound to another node.
            VodaError: the cluster refuses it, or does not answer.
        """
        ...
