"""The pods for whose claims voda chooses cards, by uid: those with the gate, and those whose gate it has lifted."""

from collections.abc import Collection

from voda.cluster.kubernetes import well_known
from voda.cluster.kubernetes.objects import Pod


class ClaimingPods:
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

        Who waits for a quota, say, keeps no card from others.
        """
        there = [pod for pod in self.by_uid.values() if pod.is_active and not pod.spec.node_name]
        there = [pod for pod in there if all(gate == well_known.SHARE_GATE for gate in pod.gates)]
        return sorted(there, key=lambda pod: (pod.metadata.creation_timestamp, pod.metadata.key))


def _is_ours(pod: Pod) -> bool:
    return well_known.SHARE_GATE in pod.gates or well_known.CARDS in pod.metadata.annotations
