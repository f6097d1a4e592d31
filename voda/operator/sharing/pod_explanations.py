"""Why a pod that asks for GPUs has them, or waits, by either way: claims, or resources with kube-scheduler's extender.

Rule: every replica answers, by its own fold of the log and its own mirror; what only a leader remembers (the nodes that
a pod avoids) is left out.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from voda.cluster.kubernetes import well_known
from voda.cluster.kubernetes.objects import Pod
from voda.cluster.kubernetes.state.inventory import Inventory
from voda.cluster.kubernetes.state.shared_gpus import share_requests
from voda.domain.errors import ClusterUnavailable, InvalidInput, NotFound
from voda.domain.gpus import ContainerGpus
from voda.extender.share_verbs import ExtenderPod, ShareVerbs
from voda.operator.sharing.annotated_shares import ClosedNodes
from voda.operator.sharing.claims.allotment import Allotment, ChosenGpus, Claimant, ClosedAccounts, NoRoom
from voda.operator.sharing.claims.claimants import Claimants
from voda.operator.sharing.claims.verdicts import scheduler_of, verdict
from voda.projections.cluster.shares import ShareAccounts
from voda.sharing.rating import GpuChooser, Rater
from voda.text import counted

PodState = Literal["Waiting", "Reserved", "Scheduled", "Ended"]
"""Without GPUs; with GPUs that the log has; on a node; over."""


class PodExplanation(Struct, frozen=True, kw_only=True):
    """One pod now."""

    pod: str
    """`namespace/name`."""
    pod_uid: str
    asks_by: Literal["claims", "resources"]
    asks_for: str = ""
    """In words; empty: that cannot be known, and the reason says why."""
    state: PodState
    node: str = ""
    """Where it is, or has its GPUs by the log."""
    containers: Mapping[str, ContainerGpus] = {}
    """What it has by the log."""
    assigned_at: float | None = None
    reason: str
    """Why it waits, or what is left to be done, one sentence; empty: it has what it asked for."""


@dataclass(kw_only=True)
class PodExplanations:
    """Of one replica.

    `claimants` is None where voda chooses no GPUs for claims; `is_extender` says whether it extends kube-scheduler.
    """

    inventory: Inventory
    shares: Callable[[], ShareAccounts]
    rater: Rater
    claimants: Claimants | None
    is_extender: bool
    is_synced: Callable[[], bool]

    def __post_init__(self) -> None:
        self._choosers = GpuChooser(self.rater), GpuChooser(self.rater)
        self._closed = ClosedNodes(self.inventory.sharing)
        self._closed_accounts = ClosedAccounts()

    def explain(self, namespace: str, name: str) -> PodExplanation:
        """Explain a pod.

        Raises:
            NotFound: there is no such pod, or it asks for no GPUs.
            ClusterUnavailable: the cluster has not been read yet.
        """
        if not self.is_synced():
            raise ClusterUnavailable("this replica is still reading the cluster: try again in a moment")
        # One sentence for both: which other pods there are is not for everybody to know.
        absent = NotFound(f"there is no pod {namespace}/{name} that asks for GPUs which voda chooses")
        if (pod := self.inventory.pods_by_key.get(f"{namespace}/{name}")) is None:
            raise absent
        uid = pod.metadata.uid
        shares, node = self.shares().of(uid), self.shares().node_of(uid)
        claims, asks = uid in self.inventory.claiming.by_uid, uid in self.inventory.sharing.by_uid
        if not (claims or asks or shares is not None):
            raise absent
        by_claims = claims or not asks
        found = PodExplanation(
            pod=pod.metadata.key,
            pod_uid=uid,
            asks_by="claims" if by_claims else "resources",
            state=_state(pod, has_gpus=shares is not None),
            node=pod.spec.node_name or node,
            containers=shares.containers if shares is not None else {},
            assigned_at=shares.assigned_at if shares is not None else None,
            reason="",
        )
        if pod.is_over:
            return replace(found, reason="the pod has ended")
        if pod.is_leaving and not pod.spec.node_name:
            return replace(found, reason="the pod is being deleted")
        return self._of_claims(pod, found) if by_claims else self._of_resources(pod, found)

    def _of_claims(self, pod: Pod, found: PodExplanation) -> PodExplanation:
        if self.claimants is None:
            return replace(found, reason="voda chooses no GPUs for claims: set sharing.claims of voda serve")
        if others := [gate for gate in pod.gates if gate != well_known.SHARE_GATE]:
            return replace(found, reason=f"other scheduling gates hold it: {', '.join(others)}")
        try:
            claimant = self.claimants.of(pod)
        except InvalidInput as error:
            return replace(found, reason="" if pod.spec.node_name else str(error))
        if claimant is None:
            return replace(found, reason=self._missing(pod))
        found = replace(found, asks_for=claimant.text())
        if pod.spec.node_name:
            return replace(found, reason="" if found.containers else "its claims have no GPUs on record")
        return replace(found, reason=self._why_waiting(self.claimants, claimant))

    def _why_waiting(self, claimants: Claimants, claimant: Claimant) -> str:
        pod, meant = claimant.pod, claimants.meant(claimant)
        if meant is None or claimants.is_lost(meant):
            chosen = self._choose(claimants, claimant)
            if meant is None and isinstance(chosen, ChosenGpus) and well_known.SHARE_GATE not in pod.gates:
                # The leader alone remembers whether it is to wait, though there is room.
                return f"it holds no GPUs any more; {_without_gpus(pod)}"
            gone = "" if meant is None else "its GPU is gone; "
            if isinstance(chosen, ChosenGpus):
                return f"{gone}{self._next(pod, chosen)}"
            node = self.shares().requests().get(claimant.uid)
            return f"{gone}{chosen.reason}{f'; jobs are to give up GPUs of {node} for it' if node else ''}"
        if claimants.accounts.is_given(claimant.uid):
            return f"kube-scheduler has given it its GPUs, and is about to bind it to {meant.node}"
        if not claimants.is_bound(meant):
            return f"voda has chosen {meant.node} for it, and is about to name the GPUs in its claims"
        return f"voda has chosen {meant.node} for it; {_kube_scheduler(pod)}"

    def _choose(self, claimants: Claimants, claimant: Claimant) -> ChosenGpus | NoRoom:
        return Allotment(self._choosers[0], claimants.open_nodes(), self._closed_accounts).choose(claimant)

    def _next(self, pod: Pod, chosen: ChosenGpus) -> str:
        without = [each for each in self.inventory.claiming.waiting() if not self.shares().node_of(each.metadata.uid)]
        before = without.index(pod) if pod in without else 0
        turn = f"after {counted(before, 'pod')} that came before it" if before else "next"
        return f"there is room on {chosen.node}; its turn comes {turn}"

    def _missing(self, pod: Pod) -> str:
        templates, namespace = self.inventory.stock.devices.templates, pod.metadata.namespace
        asked = {each.name: each.resource_claim_template_name for each in pod.spec.resource_claims}
        for name in pod.missing_claims:
            if f"{namespace}/{asked[name]}" not in templates:
                return f"claim {name} waits for its template: {namespace} has no ResourceClaimTemplate {asked[name]}"
        return f"its claims are still to be made: {', '.join(pod.missing_claims) or 'they are about to change'}"

    def _of_resources(self, pod: Pod, found: PodExplanation) -> PodExplanation:
        names = self.inventory.sharing.names
        try:
            requests = share_requests(pod, names)
        except InvalidInput as error:
            return replace(found, reason=str(error))
        asking = ExtenderPod(uid=found.pod_uid, key=found.pod, requests=requests)
        found = replace(found, asks_for=asking.text())
        if not self.is_extender:
            return replace(found, reason="voda places no pods that ask for GPUs: set sharing.enabled of voda serve")
        if found.containers:
            reason = "" if pod.spec.node_name else f"voda has chosen its GPUs, and is about to bind it to {found.node}"
            return replace(found, reason=reason)
        if pod.spec.node_name:
            return replace(found, reason=f"it was bound by others, and its GPUs of {found.node} are not recorded yet")
        return replace(found, reason=self._room(pod, asking))

    def _room(self, pod: Pod, asking: ExtenderPod) -> str:
        accounts = self.shares()
        names = [name for name, account in accounts.nodes.items() if account.devices and not account.is_claimed]
        answer = ShareVerbs(self._choosers[1], accounts.nodes, self._closed.now(accounts)).filter(asking, names)
        if answer.node_names:
            return f"its GPUs are free on {', '.join(answer.node_names[:3])}; {_kube_scheduler(pod)}"
        reasons = Counter({**answer.failed_nodes, **answer.failed_and_unresolvable_nodes}.values())
        told = ", ".join(f"{count} {reason}" for reason, count in reasons.most_common())
        return f"0/{len(names)} nodes with GPUs have room: {told or 'there is none'}"


def _state(pod: Pod, *, has_gpus: bool) -> PodState:
    if pod.is_over:
        return "Ended"
    if pod.spec.node_name:
        return "Scheduled"
    return "Reserved" if has_gpus else "Waiting"


def _kube_scheduler(pod: Pod) -> str:
    """Return what kube-scheduler says of a pod, as the rest of a sentence."""
    if (found := verdict(pod)) is not None:
        return f"kube-scheduler cannot place it there: {found.message}"
    return f"{scheduler_of(pod)} has not placed it yet"


def _without_gpus(pod: Pod) -> str:
    """Return what schedulers say of a pod that has lost its GPUs, as the rest of a sentence."""
    if verdict(pod) is not None:
        return _kube_scheduler(pod)
    return f"no scheduler has looked at it: its schedulerName is {scheduler_of(pod)}"
