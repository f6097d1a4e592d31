"""What pods that claim GPUs have of a node: what the API server says that their claims were given there.

Rule: what workers have is no share: plans count it.
"""

from collections.abc import Callable, Collection, Container, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Final

from voda.application.journal import Journal
from voda.cluster.kubernetes.claim_binding import ClaimBinding
from voda.cluster.kubernetes.device_objects import ResourceClaim
from voda.cluster.kubernetes.state.claim_ledger import ClaimLedger
from voda.cluster.kubernetes.state.claimed_amounts import given_gpus
from voda.cluster.kubernetes.state.inventory import Inventory
from voda.cluster.kubernetes.state.job_pods import worker_of
from voda.cluster.kubernetes.state.sharing_pods import GatedPods
from voda.domain.errors import ChangedMeanwhile
from voda.domain.gpus import ContainerGpus
from voda.domain.shares import SharingNode
from voda.operator.sharing.claims.stale_claimants import Standing, stale_claimants
from voda.operator.sharing.share_corrections import GivenShares, SeenShares, StaleShare
from voda.projections.cluster.shares import ShareAccounts

ACTOR: Final = "claims"
_UNSEEN_S: Final = 60.0
"""For so long a claim may be of a pod that is not there."""


@dataclass(kw_only=True)
class ClaimedShares:
    """What `ShareReconciler` is told of nodes whose GPUs pods claim; every replica can ask the rest."""

    journal: Journal
    binding: ClaimBinding
    inventory: Inventory
    _used: dict[str, tuple[tuple[int, int], Collection[int]]] = field(default_factory=dict, init=False)
    """Node -> the GPUs that workers use, and what that was found at."""
    _unseen: dict[str, float] = field(default_factory=dict, init=False)
    """Uid of a claim whose pod is not there -> since when."""

    actor: ClassVar[str] = ACTOR

    @property
    def pods(self) -> GatedPods:
        """Return those for whose claims voda chooses GPUs."""
        return self.inventory.claiming

    @property
    def ledger(self) -> ClaimLedger:
        return self.inventory.stock.devices.shared

    def mark_all(self) -> None:
        """Have the next round look at all nodes, those too whose GPUs are gone while pods still have them."""
        self.ledger.changed.update(self.ledger.nodes)
        self.ledger.changed.update(name for name, account in self.shares.nodes.items() if account.pods)
        there = {claim.metadata.uid for claim in self.inventory.stock.devices.claims.values()} if self._unseen else ()
        self._unseen = {uid: since for uid, since in self._unseen.items() if uid in there}
        self._used = {name: known for name, known in self._used.items() if name in self.ledger.nodes}

    def is_known(self, node: str) -> bool:
        """Say whether the log has the GPUs of a node that the mirror has: then their indices are the same."""
        account = self.shares.nodes.get(node)
        return account is not None and account.is_claimed and account.devices == self.ledger.devices(node)

    def used_by_workers(self, node: str) -> Collection[int]:
        """Return the GPUs of a node, by index, of which claims have some that the account does not count."""
        account = self.shares.nodes.get(node)
        found_at = self.ledger.last_change(node), account.version if account is not None else -1
        if (known := self._used.get(node)) is None or known[0] != found_at:
            pods, gpus = self.shares.pods(node), self.ledger.nodes.get(node, ())
            skipped = [claim for claim in self.ledger.claims_on(node).values() if self._is_skipped(claim, node, pods)]
            taken = {device for claim in skipped for device in claim.devices}
            known = found_at, [index for index, gpu in enumerate(gpus) if gpu.id in taken]
            self._used[node] = known
        return known[1]

    def unshared_of_workers(self, node: str) -> int:
        """Return how many GPUs of a node that claims do not share no pod of others has."""
        devices = self.inventory.stock.devices
        claims = ((devices.claims[key], count) for key, count in devices.holders(node).items())
        return devices.unshared(node) - sum(count for claim, count in claims if not self._is_of_worker(claim, node))

    def is_given(self, uid: str) -> bool:
        """Say whether any claim of a pod was given a part of a GPU."""
        return any(each.share_id for claim in self._claims_of(uid) for each in claim.results)

    @property
    def shares(self) -> ShareAccounts:
        """Return those of the log."""
        return self.journal.view.cluster.shares

    def follows(self, node: str, account: SharingNode) -> bool:
        """Say whether pods claim the GPUs of a node: else they are the extender's, or nobody's.

        Raises:
            ChangedMeanwhile: the log does not have its GPUs yet.
        """
        if node in self.ledger.nodes and not self.is_known(node):
            raise ChangedMeanwhile(f"the log does not have the GPUs of node {node} yet")
        return account.is_claimed or not account.devices

    def seen(self, node: str, account: SharingNode) -> SeenShares:
        """Return what claims were given of the node by the mirror."""
        given, now = self._given(node, account), self.journal.clock.now()
        stale = list(stale_claimants(account, given, self.pods.by_uid, self._standing(node), now))
        return SeenShares(stale=stale, given=given, meant=account.pods.keys() - given.keys())

    async def is_stale(self, share: StaleShare) -> bool:
        """Ask the API server whether a pod is gone, or is not to have a node any more."""
        if self.is_given(share.pod_uid):
            return False
        namespace, _, name = share.pod.partition("/")
        pod = await self.binding.pod(namespace, name)
        if pod is None or pod.metadata.uid != share.pod_uid or pod.is_over:
            return True
        return pod.is_leaving and not pod.spec.node_name

    def _standing(self, node: str) -> Callable[[str], Standing]:
        def standing(uid: str) -> Standing:
            if any(self._is_of_worker(claim, node) for claim in self._claims_of(uid)):
                return "planned"
            if any(self.ledger.nodes_of(claim) - {node} for claim in self._claims_of(uid)):
                return "elsewhere"
            return "lost" if self.is_given(uid) else "nothing"

        return standing

    def _given(self, node: str, account: SharingNode) -> Mapping[str, GivenShares]:
        """Return uid of a pod, or of a claim of its own -> what it has of a node."""
        found = dict[str, GivenShares]()
        for key, claim in self.ledger.claims_on(node).items():
            if self._is_skipped(claim, node, account.pods):
                continue
            if not (shares := given_gpus(claim, self.ledger.nodes[node], self.ledger.names)):
                continue
            owner = claim.owner if self._is_near(claim) else claim.metadata.uid
            if (other := self.shares.node_of(owner)) not in ("", node):
                if not self._has_some(owner, other):
                    # What it was meant to have there is released first.
                    self.ledger.changed.update((node, other))
                    continue
                # Anybody can say that a claim is a pod's.
                owner = claim.metadata.uid
            former = found[owner].containers if owner in found else {}
            found[owner] = GivenShares(key=claim.pod or key, containers=_together(former, shares, claim))
        for uid, each in found.items():
            pod, meant = self.pods.by_uid.get(uid), account.pods.get(uid)
            # kube-scheduler allocates the claims of a pod one after the other, and then binds it.
            if pod is not None and meant is not None and not pod.spec.node_name:
                found[uid] = GivenShares(key=each.key, containers={**meant.containers, **each.containers})
        return found

    def _is_skipped(self, claim: ResourceClaim, node: str, recorded: Container[str]) -> bool:
        """Say whether a claim is none of the account's business: a worker's, or its pod is about to come, or to go.

        Not for long: whoever may make claims can name a pod that never was.
        """
        if not claim.pod or claim.pod in self.inventory.pods_by_key or claim.owner in self.pods.by_uid:
            self._unseen.pop(claim.metadata.uid, None)
            return self._is_of_worker(claim, node)
        now = self.journal.clock.now()
        return claim.owner not in recorded and now - self._unseen.setdefault(claim.metadata.uid, now) < _UNSEEN_S

    def _is_of_worker(self, claim: ResourceClaim, node: str) -> bool:
        """Say whether a claim is that of a worker of the node's pool: plans count what it has.

        The pod's status has to name it: that, unlike an owner, is not for users to write.
        """
        pod = self.inventory.pods_by_key.get(claim.pod)
        if pod is None or pod.metadata.uid != claim.owner or claim.owner in self.pods.by_uid:
            return False
        if claim.metadata.name not in pod.claim_names or claim.pod not in self.inventory.workers(worker_of(pod)):
            return False
        return self.inventory.pool(worker_of(pod)) == self.inventory.stock.pool_of(node)

    def _has_some(self, uid: str, node: str) -> bool:
        """Say whether the claims of a pod were given GPUs of a node."""
        return any(node in self.ledger.nodes_of(claim) for claim in self._claims_of(uid))

    def _claims_of(self, uid: str) -> Sequence[ResourceClaim]:
        return [claim for claim in self.ledger.claims_of(uid).values() if self._is_near(claim)]

    def _is_near(self, claim: ResourceClaim) -> bool:
        """Say whether a claim is in the namespace of its pod; else strangers would hold the pod up."""
        pod = self.pods.by_uid.get(claim.owner)
        return pod is None or pod.metadata.namespace == claim.metadata.namespace


def _together(
    former: Mapping[str, ContainerGpus], shares: Mapping[str, ContainerGpus], claim: ResourceClaim
) -> Mapping[str, ContainerGpus]:
    """Return what two claims of a pod have, those too that have one name within it."""
    own = {f"{key} of {claim.metadata.name}" if key in former else key: each for key, each in shares.items()}
    return {**former, **own}
