"""What mirror and log know of pods that claim parts of GPUs: what they ask for, and what they are meant to have.

Rule: nothing is written; every replica can ask.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from voda.cluster.kubernetes import well_known
from voda.cluster.kubernetes.objects import NodeObject, Pod
from voda.cluster.kubernetes.state.chosen_claims import ChosenClaim, chosen_claims, claims_of_pod
from voda.cluster.kubernetes.state.claim_ledger import LedgerGpu
from voda.cluster.kubernetes.state.claimed_amounts import asked_of_gpus, nodes_too_small
from voda.cluster.kubernetes.state.inventory import Inventory
from voda.domain.errors import InvalidInput
from voda.kinds.quantities import milli, pod_requests
from voda.operator.sharing.claims.allotment import ChosenGpus, Claimant, OpenNode
from voda.operator.sharing.claims.claimed_shares import ClaimedShares
from voda.operator.sharing.claims.requests import JobGpus, OpenRequests
from voda.operator.sharing.claims.round import HeldGpus, UnplacedPod
from voda.planner.registries import spare_for_pods
from voda.projections.cluster.shares import ShareAccounts

_LIMITING: Final = ("cpu", "memory")
"""Resources of which a node never has more than it says, so that a pod which requests more never runs there."""
_IN_USE: Final = "in use by jobs"
_PLANNED: Final = "planned for jobs"


@dataclass(kw_only=True)
class Claimants:
    """See the module."""

    accounts: ClaimedShares

    @property
    def inventory(self) -> Inventory:
        return self.accounts.inventory

    def waiting_pod(self, pod: Pod) -> UnplacedPod:
        """Return what is known of a pod without a node."""
        uid = pod.metadata.uid
        try:
            claimant = self.of(pod)
        except InvalidInput as error:
            return UnplacedPod(pod=pod, obstacle=str(error))
        gpus = self.meant(claimant) if claimant is not None else None
        return UnplacedPod(
            pod=pod,
            claimant=claimant,
            is_given=self.accounts.is_given(uid),
            held=self._held(gpus) if gpus is not None else None,
            requested_of=self.shares.requests().get(uid, ""),
        )

    def _held(self, gpus: ChosenGpus) -> HeldGpus:
        are_lost = self.is_lost(gpus)
        is_known = not are_lost and self.accounts.is_known(gpus.node)
        return HeldGpus(
            gpus=gpus,
            are_lost=are_lost,
            is_known=is_known,
            are_named=is_known and self.is_bound(gpus),
            renewals=self.renewals(gpus) if is_known else 0,
        )

    def of(self, pod: Pod) -> Claimant | None:
        """Return what a pod asks for; None: its claims are still to be made.

        Raises:
            InvalidInput: it gets no GPUs as it is, and why, one sentence.
        """
        devices = self.inventory.stock.devices
        made = devices.shared.claims_of(pod.metadata.uid).values()
        if (claims := claims_of_pod(pod, devices.claims, made)) is None:
            return None
        if pod.metadata.uid in self.inventory.sharing.by_uid:
            # Its share may be the extender's, which is about to bind it.
            raise InvalidInput(f"pod {pod.metadata.key} asks for GPUs by resources and by claims, expected one of them")
        classes, gpus = devices.rule.device_classes, devices.shared
        requests = asked_of_gpus(pod, claims, classes, gpus)
        amounts = pod_requests(pod.spec, f"pod {pod.metadata.key}")
        return Claimant(
            pod=pod,
            claims=claims,
            requests=requests,
            too_small=nodes_too_small(claims, classes, gpus),
            amounts={name: amounts[name] for name in _LIMITING if name in amounts},
        )

    def meant(self, claimant: Claimant) -> ChosenGpus | None:
        """Return the GPUs that a pod has in the log; None: it has none."""
        found = self.shares.of(claimant.uid)
        if found is None:
            return None
        node = self.shares.node_of(claimant.uid)
        return ChosenGpus(claimant=claimant, node=node, containers=found.containers, assigned_at=found.assigned_at)

    def is_lost(self, meant: ChosenGpus) -> bool:
        """Say whether a GPU that a pod is meant to have is there no more."""
        there = len(self.accounts.ledger.nodes.get(meant.node, ()))
        return any(max(each.gpus) >= there for each in meant.containers.values())

    def is_bound(self, meant: ChosenGpus) -> bool:
        """Say whether the claims of a pod select its GPUs, and nothing is left to do."""
        pod = meant.claimant.pod
        is_gated = well_known.SHARE_GATE in pod.gates
        return not is_gated and all(each.is_chosen(pod) for each in self.claims(meant).values())

    def renewals(self, meant: ChosenGpus) -> int:
        """Return how often claims of a pod that select its GPUs were made anew."""
        pod = meant.claimant.pod
        return max((each.renewals_of(pod) for each in self.claims(meant).values()), default=0)

    def claims(self, chosen: ChosenGpus) -> Mapping[str, ChosenClaim]:
        """Return the claims of a pod that are to select its GPUs."""
        gpus, claims = self.accounts.ledger, chosen.claimant.claims
        return chosen_claims(claims, chosen.containers, chosen.node, gpus, renewals=chosen.renewals)

    def has(self, chosen: ChosenGpus) -> bool:
        """Say whether the log has the share, by which alone claims may select GPUs."""
        uid = chosen.claimant.uid
        found = self.shares.of(uid) if self.shares.node_of(uid) == chosen.node else None
        return found is not None and found.containers == chosen.containers and self.accounts.is_known(chosen.node)

    def open_nodes(self) -> Mapping[str, OpenNode]:
        """Return the nodes whose GPUs can be chosen."""
        stock, gpus, found = self.inventory.stock, self.accounts.ledger, {}
        planned = self._planned()
        for name, there in gpus.nodes.items():
            node = stock.node(name)
            if node is not None and node.is_open and self.accounts.is_known(name):
                found[name] = OpenNode(
                    account=self.shares.nodes[name],
                    labels=stock.nodes[name].metadata.labels,
                    closed_gpus=self._closed_gpus(name, there, planned.get(name, 0)),
                    amounts=_amounts(stock.nodes[name]),
                )
        return found

    def job_gpus(self, now: float) -> JobGpus:
        """Return what jobs can give up of each pool: nothing where virtual clusters share it, or no job shrinks."""
        cluster = self.accounts.journal.view.cluster
        pools = {self.inventory.stock.pool_of(name) for name in self.accounts.ledger.nodes}
        there = sorted(pool for pool in pools if pool is not None and cluster.cells(pool) is None)
        found = (spare_for_pods(cluster.state(pool), now) for pool in there)
        spare = [each for each in found if each is not None]
        return JobGpus(spare=spare, being_left=self._nodes_being_left(), gives_up=self._gives_up)

    def requests(self) -> OpenRequests:
        """Return the requests that there are."""
        nodes = self.shares.nodes
        return {uid: (node, nodes[node].requests[uid]) for uid, node in self.shares.requests().items()}

    def _gives_up(self, node: str) -> bool:
        """Say whether a worker that leaves a node leaves a GPU that a pod can be given, whichever worker it is."""
        gpus = self.accounts.ledger
        is_any = all(not gpu.is_for_pods and not gpus.obstacle(gpu) for gpu in gpus.nodes.get(node, ()))
        return is_any and not self.inventory.stock.devices.unshared(node)

    def _nodes_being_left(self) -> Collection[str]:
        """Return the nodes with workers that no plan has there any more."""
        cluster = self.accounts.journal.view.cluster
        return {
            node
            for pool in cluster.pools()
            for job_id, job in cluster.jobs(pool).items()
            for index, node in job.workers.items()
            if cluster.plan(pool).placement.get(job_id, ())[index : index + 1] != (node,)
        }

    def _closed_gpus(self, node: str, gpus: Sequence[LedgerGpu], planned: int) -> Mapping[int, str]:
        """Return the GPUs that no pod can be given -> why.

        Which GPUs workers get is kube-scheduler's choice: until it has chosen, so many whole ones are kept for them.
        """
        reasons = map(self.accounts.ledger.obstacle, gpus)
        closed = {index: reason for index, reason in enumerate(reasons) if reason}
        closed |= dict.fromkeys(used := self.accounts.used_by_workers(node), _IN_USE)
        awaited = planned - len(used) - self.accounts.unshared_of_workers(node)
        if awaited > 0:
            free = enumerate(self.shares.nodes[node].free())
            whole = [index for index, left in free if left.is_whole and index not in closed]
            closed |= dict.fromkeys(whole[-awaited:], _PLANNED)
        return closed

    def _planned(self) -> Mapping[str, int]:
        """Return node -> GPUs that plans give to workers there."""
        view, found = self.accounts.journal.view.cluster, Counter[str]()
        for pool in view.pools():
            jobs = view.jobs(pool)
            for job_id, nodes in view.plan(pool).placement.items():
                job = jobs.get(job_id)
                if job is not None and not job.spec.share:
                    for index, node in enumerate(nodes):
                        found[node] += 0 if index in job.done else job.spec.gpus_per_replica
        return found

    @property
    def shares(self) -> ShareAccounts:
        """Return those of the log."""
        return self.accounts.shares


def _amounts(node: NodeObject) -> Mapping[str, int]:
    """Return what a node has for pods, in thousandths; what is no quantity is left out."""
    found = {}
    for name in _LIMITING:
        try:
            found[name] = milli(node.status.allocatable[name])
        except (KeyError, InvalidInput):
            continue
    return found
