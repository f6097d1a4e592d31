"""Which cards of a node the workers of jobs have as a whole, by the claims of their pods. Pure.

Rule: where a worker asks by an extended resource, the cluster does not say which cards it has.
"""

from collections.abc import Mapping

from voda.cluster.kubernetes.device_objects import ResourceClaim
from voda.cluster.kubernetes.state.inventory import Inventory
from voda.cluster.kubernetes.state.job_pods import worker_of


def job_cards(inventory: Inventory, node: str) -> Mapping[int, str]:
    """Return card -> id of the job of which a worker's claim has it; one that has a part keeps the rest from others."""
    shared = inventory.stock.devices.shared
    index = {card.id: number for number, card in enumerate(shared.nodes.get(node, ()))}
    found = ((claim, _job_of(inventory, claim)) for claim in shared.claims_on(node).values())
    return {index[device]: job_id for claim, job_id in found if job_id for device in claim.devices & index.keys()}


def _job_of(inventory: Inventory, claim: ResourceClaim) -> str:
    """Return the id of the job whose worker a claim was made for; empty: it is none of a worker."""
    pod = inventory.pods_by_key.get(claim.pod)
    job_id = worker_of(pod) if pod is not None else ""
    # Anybody can copy the annotation.
    return job_id if job_id and claim.pod in inventory.workers(job_id) else ""
