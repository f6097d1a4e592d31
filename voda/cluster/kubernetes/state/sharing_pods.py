"""The pods that ask for GPUs or shares of them, by uid: by resources, those that are bound by node too, and by claims.

Rule: a pod that has ended holds nothing of its node; one that is leaving holds it until it is gone.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping
from typing import Final

from voda.changed_keys import ChangedKeys
from voda.cluster.kubernetes import well_known
from voda.cluster.kubernetes.objects import Pod
from voda.cluster.kubernetes.state.shared_gpus import ShareResources, asks_for_gpus

_NO_PODS: Final[Mapping[str, Pod]] = {}


class GpuPods:
    def __init__(self, names: ShareResources) -> None:
        self.names = names
        self.by_uid: dict[str, Pod] = {}
        self.changes = ChangedKeys()
        """The nodes of pods that changed; "" = of pods without a node."""
        self._holding: defaultdict[str, dict[str, Pod]] = defaultdict(dict)

    def put(self, before: Pod | None, now: Pod | None) -> None:
        if before is not None and self.by_uid.pop(before.metadata.uid, None) is not None:
            self.changes.add(before.spec.node_name)
            self._holding[before.spec.node_name].pop(before.metadata.uid, None)
            if not self._holding[before.spec.node_name]:
                del self._holding[before.spec.node_name]
        if now is not None and asks_for_gpus(now, self.names):
            self.changes.add(now.spec.node_name)
            self.by_uid[now.metadata.uid] = now
            if now.spec.node_name and not now.is_over:
                self._holding[now.spec.node_name][now.metadata.uid] = now

    @property
    def by_node(self) -> Mapping[str, Mapping[str, Pod]]:
        """Node -> the pods that hold something of it, by uid."""
        return self._holding

    def on(self, node: str) -> Mapping[str, Pod]:
        """Return the pods that hold something of a node, by uid."""
        return self._holding.get(node, _NO_PODS)


class GatedPods:
    """The pods for whose claims voda chooses GPUs: those with the gate, and those whose gate it has lifted."""

    def __init__(self) -> None:
        self.by_uid: dict[str, Pod] = {}
        self.changes = 0
        """How often it has changed."""

    def put(self, before: Pod | None, now: Pod | None) -> None:
        if before is not None and self.by_uid.pop(before.metadata.uid, None) is not None:
            self.changes += 1
        if now is not None and _is_ours(now):
            self.changes += 1
            self.by_uid[now.metadata.uid] = now

    def waiting(self) -> Collection[Pod]:
        """Return the pods that have no node yet and that no other gate holds, the oldest first.

        Who waits for a quota, say, keeps no GPU from others.
        """
        there = [pod for pod in self.by_uid.values() if pod.is_active and not pod.spec.node_name]
        there = [pod for pod in there if all(gate == well_known.SHARE_GATE for gate in pod.gates)]
        return sorted(there, key=lambda pod: (pod.metadata.creation_timestamp, pod.metadata.key))


def _is_ours(pod: Pod) -> bool:
    return well_known.SHARE_GATE in pod.gates or well_known.GPUS in pod.metadata.annotations
