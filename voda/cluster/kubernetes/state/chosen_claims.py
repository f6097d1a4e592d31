"""The claims of a pod by their names, and those that select the GPUs which were chosen for it. Pure.

Rule: a claim cannot be changed, so another one, whose name follows from pod, claim and GPUs, takes its place; and
another one of the same GPUs, with a number at the end of its name, where kube-scheduler is to look again.
"""

from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from hashlib import blake2b
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from voda.cluster.kubernetes import well_known
from voda.cluster.kubernetes.device_objects import ResourceClaim
from voda.cluster.kubernetes.objects import Pod
from voda.cluster.kubernetes.state.claim_ledger import ClaimLedger
from voda.cluster.kubernetes.state.claimed_amounts import share_key
from voda.domain.gpus import ContainerGpus

_DIGITS: Final = 6
_LONGEST: Final = 220
"""Of a pod's name within that of a claim, which has up to 253 letters."""


class ChosenClaim(Struct, frozen=True, kw_only=True):
    """A claim of a pod, and the GPUs that were chosen for it."""

    claim: ResourceClaim
    """The one that the pod's status names; or one that was to take its place, where that is gone already."""
    selectors: Mapping[str, str]
    """Request -> the CEL expression that selects its GPUs, and no others."""
    gpus: tuple[str, ...]
    """Their names."""
    renewals: int = 0
    """How often it is to have been made anew at least."""

    def name(self, pod: Pod) -> str:
        """Return the name of the claim that selects these GPUs."""
        known = "\n".join((pod.metadata.uid, self.claim.pod_claim, *self.gpus))
        stem = pod.metadata.name[:_LONGEST].rstrip(".-")
        first = f"{stem}-{blake2b(known.encode(), digest_size=8).hexdigest()}"
        return f"{first}-{self.renewals}" if self.renewals else first

    def is_chosen(self, pod: Pod) -> bool:
        """Say whether the claim that the pod's status names selects these GPUs already."""
        return self.renewals_of(pod) >= self.renewals

    def renewals_of(self, pod: Pod) -> int:
        """Return how often the claim that the pod's status names was made anew; -1: it selects other GPUs, or none."""
        named = {each.name: each.resource_claim_name for each in pod.status.resource_claim_statuses}
        first = replace(self, renewals=0).name(pod)
        stem, is_it, number = named.get(self.claim.pod_claim, "").partition(first)
        if stem or not is_it:
            return -1
        is_number = number[:1] == "-" and number[1:].isdecimal() and number.isascii() and len(number) < _DIGITS
        return int(number[1:]) if is_number else -1 if number else 0


def claims_of_pod(
    pod: Pod, claims: Mapping[str, ResourceClaim], made: Iterable[ResourceClaim] = ()
) -> Mapping[str, ResourceClaim] | None:
    """Return the pod's claims that were made after templates, by their name within it; None: some are still missing.

    `made` are all that were made for the pod: whoever replaced one may have died, or failed, between its deletion and
    the change of the status, and then the one that selects GPUs stands in for it.
    """
    namespace, found = pod.metadata.namespace, dict[str, ResourceClaim]()
    near = (each for each in made if each.metadata.namespace == namespace)
    choices = {each.pod_claim: each for each in near if well_known.GPUS in each.metadata.annotations}
    if pod.missing_claims:
        return None
    for each in pod.status.resource_claim_statuses:
        if each.resource_claim_name:
            claim = claims.get(f"{namespace}/{each.resource_claim_name}", choices.get(each.name))
            if claim is None:
                return None
            found[each.name] = claim
    return found


def replaced_claims(pod: Pod, claims: Mapping[str, ResourceClaim]) -> Sequence[ResourceClaim]:
    """Return those of the claims made for a pod that another one has taken the place of, once the pod has a node."""
    used = {each.resource_claim_name: each.name for each in pod.status.resource_claim_statuses}
    if not pod.spec.node_name or not used:
        return ()
    names = set(used.values())
    # Somebody may have made claims that are to go with the pod: these are not ours to delete.
    made = [each for each in claims.values() if each.metadata.annotations.get(well_known.POD_CLAIM) in names]
    return [each for each in made if each.metadata.name not in used and each.status.allocation is None]


def chosen_claims(
    claims: Mapping[str, ResourceClaim],
    shares: Mapping[str, ContainerGpus],
    node: str,
    ledger: ClaimLedger,
    *,
    renewals: int = 0,
) -> Mapping[str, ChosenClaim]:
    """Return those of a pod's claims that are to select GPUs of a node, by their name within the pod."""
    found = {}
    for name, claim in claims.items():
        requests = claim.spec.devices.requests
        keys = {each.name: share_key(name, each.name, len(requests)) for each in requests}
        there = {
            request: [ledger.nodes[node][gpu] for gpu in shares[key].gpus]
            for request, key in keys.items()
            if key in shares
        }
        if there:
            selectors = {request: ledger.selector(*chosen) for request, chosen in there.items()}
            names = tuple(gpu.name for chosen in there.values() for gpu in chosen)
            found[name] = ChosenClaim(claim=claim, selectors=selectors, gpus=names, renewals=renewals)
    return found


def pinned_claim(claim: Mapping[str, Any], name: str, selectors: Mapping[str, str], gpus: str) -> dict[str, Any]:
    """Return a claim like this one, of another name, whose requests select these GPUs: request -> CEL expression.

    `gpus` are their names, for people.
    """
    meta, spec = claim["metadata"], deepcopy(claim["spec"])
    notes = meta.get("annotations") or {}
    for request in spec["devices"]["requests"]:
        if selector := selectors.get(request["name"]):
            exactly = request["exactly"]
            former = exactly.get("selectors") or []
            # Another GPU was chosen for it before.
            kept = former[:-1] if well_known.GPUS in notes else former
            exactly["selectors"] = [*kept, {"cel": {"expression": selector}}]
    fields = {field: meta[field] for field in ("namespace", "labels") if field in meta}
    # To let it block the pod's deletion takes a right to the pod's finalizers where the API server enforces that.
    owners = [{**each, "blockOwnerDeletion": False} for each in meta.get("ownerReferences") or ()]
    metadata = {**fields, "ownerReferences": owners, "name": name, "annotations": {**notes, well_known.GPUS: gpus}}
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": metadata, "spec": spec}
