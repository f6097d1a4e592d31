"""What the claims of a pod take of GPUs: what they ask for, and what they have. Pure.

Rules: of compute a claim asks for thousandths of the smallest GPU that there is, rounded up, so that it never takes
more of another; what it was given is rounded down, so that all that a GPU gives fits on it, in sevenths too; what a
claim does not say it takes as the device's driver says, and all of it where that says nothing.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from voda.cluster.kubernetes import well_known
from voda.cluster.kubernetes.device_objects import DeviceRequest, RequestChoice, ResourceClaim
from voda.cluster.kubernetes.objects import Pod
from voda.cluster.kubernetes.state.claim_ledger import (
    MIB_MILLI,
    CapacityNames,
    ClaimLedger,
    LedgerGpu,
    in_mib,
    named,
)
from voda.domain.errors import InvalidInput
from voda.domain.gpus import MILLI_PER_DEVICE, ContainerGpus, GpuRequest, Gpus, total
from voda.kinds.pod_template import Quantity
from voda.kinds.quantities import milli

WHOLE: Final = GpuRequest(devices=Gpus(1))
_MOST_DEVICES: Final = 128
"""Of a pod: to look for many takes long, and others wait meanwhile."""
_MOST_OF_REQUEST: Final = 32
"""So many devices the API server lets a claim have."""


def share_key(claim: str, request: str, requests: int) -> str:
    """Return what the log calls a request of a pod: its claim, with its own name where the claim has several."""
    return claim if requests == 1 else f"{claim}/{request}"


def asked_of_gpus(
    pod: Pod, claims: Mapping[str, ResourceClaim], classes: Collection[str], ledger: ClaimLedger
) -> Mapping[str, GpuRequest]:
    """Return what a pod's claims ask of GPUs of these device classes, by `share_key`.

    Raises:
        InvalidInput: voda cannot choose a GPU for one of the requests, or none asks for a part of a GPU.
    """
    if (count := sum(map(_devices, claims.values()))) > _MOST_DEVICES:
        raise InvalidInput(f"pod {pod.metadata.key} claims {count} devices, expected {_MOST_DEVICES} at most")
    found = {}
    for name, claim in claims.items():
        requests = claim.spec.devices.requests
        for request in requests:
            if any(choice.device_class_name in classes for choice in request.choices):
                found[share_key(name, request.name, len(requests))] = _asked(pod, name, request, ledger)
    if not found:
        raise InvalidInput(
            f"pod {pod.metadata.key} has the scheduling gate {well_known.SHARE_GATE} and claims no part of a GPU:"
            f" expected a resourceClaimTemplateName whose template asks for a device class {', '.join(classes)}"
        )
    return found


def request_of_choice(choice: RequestChoice, ledger: ClaimLedger) -> GpuRequest:
    """Return what a request asks of GPUs.

    Raises:
        InvalidInput: voda cannot choose GPUs for it.
    """
    if reason := _obstacle(choice):
        raise InvalidInput(reason)
    asked = _amounts(choice, ledger)
    if choice.count > 1 and asked.is_share:
        raise InvalidInput(f"it asks for a part of {choice.count} GPUs each, expected a request for each part")
    return replace(asked, devices=Gpus(choice.count)) if asked.devices else asked


def nodes_too_small(
    claims: Mapping[str, ResourceClaim], classes: Collection[str], ledger: ClaimLedger
) -> Collection[str]:
    """Return the nodes of which too few GPUs have as much as a claim asks for; a whole GPU may be too small."""
    requests = [each for claim in claims.values() for each in claim.spec.devices.requests]
    choices = [each.exactly for each in requests if each.exactly and each.exactly.device_class_name in classes]
    needed = {(*_needed(each, ledger), each.count) for each in choices}
    if all(compute <= ledger.sizes.least_compute and mib <= ledger.sizes.least_mib for compute, mib, _ in needed):
        return ()
    return {node for node, there in ledger.nodes.items() if not all(_is_in(each, there) for each in needed)}


def given_gpus(claim: ResourceClaim, gpus: Sequence[LedgerGpu], names: CapacityNames) -> Mapping[str, ContainerGpus]:
    """Return what a claim has of the GPUs of a node, by `share_key`; whole GPUs of one request together."""
    place = {gpu.id: index for index, gpu in enumerate(gpus)}
    found: dict[str, ContainerGpus] = {}
    for number, each in enumerate(claim.results):
        index = place.get((each.driver, each.pool, each.device))
        if index is not None and (request := _given(gpus[index], each.consumed_capacity, names)) is not None:
            key = share_key(claim.pod_claim, each.request, len(claim.spec.devices.requests))
            share = ContainerGpus(gpus=(index,), request=request)
            if key in found and (joined := _joined(found[key], share)) is not None:
                found[key] = joined
            else:
                found[f"{key}/{number}" if key in found else key] = share
    return found


def _joined(one: ContainerGpus, other: ContainerGpus) -> ContainerGpus | None:
    """Return two shares of a request as one; None: one of them is a part of a GPU, which goes by itself."""
    devices = total((one.request.devices, other.request.devices))
    if not (one.request.devices and other.request.devices) or {*one.gpus} & {*other.gpus}:
        return None
    return ContainerGpus(gpus=tuple(sorted((*one.gpus, *other.gpus))), request=GpuRequest(devices=devices))


def _devices(claim: ResourceClaim) -> int:
    return sum(max((choice.count for choice in each.choices), default=1) for each in claim.spec.devices.requests)


def _asked(pod: Pod, claim: str, request: DeviceRequest, ledger: ClaimLedger) -> GpuRequest:
    where = f"pod {pod.metadata.key}: claim {claim}, request {request.name}"
    choice = request.exactly
    if choice is None:
        raise InvalidInput(f"{where}: firstAvailable leaves open what it takes, expected exactly")
    try:
        return request_of_choice(choice, ledger)
    except InvalidInput as error:
        raise InvalidInput(f"{where}: {error}") from error


def _obstacle(choice: RequestChoice) -> str:
    """Return why voda chooses no GPUs for a request, whatever amounts it names; empty: it does."""
    if choice.allocation_mode == "All":
        return "allocationMode All takes whatever a node has, expected ExactCount, with a count"
    if choice.admin_access:
        return f"adminAccess takes nothing of a GPU, expected a pod without the gate {well_known.SHARE_GATE}"
    if choice.count > _MOST_OF_REQUEST:
        return f"it asks for {choice.count} devices, expected {_MOST_OF_REQUEST} at most"
    return ""


def _amounts(choice: RequestChoice, ledger: ClaimLedger) -> GpuRequest:
    compute, memory = (_requested(choice, ledger, name) for name in (ledger.names.compute, ledger.names.memory))
    sizes, (needed_compute, needed_mib) = ledger.sizes, _needed(choice, ledger)
    if (sizes.most_compute and needed_compute > sizes.most_compute) or (sizes.most_mib and needed_mib > sizes.most_mib):
        raise InvalidInput("it takes more than any GPU has")
    if not ledger.nodes and not choice.capacity.requests:
        # Once there are GPUs; until then it is told that there are none.
        return WHOLE
    if (sizes.least_compute and compute is None) or (sizes.most_mib and memory is None):
        # Nobody can have anything of the GPU beside it.
        return WHOLE
    if (found := _request(needed_compute, sizes.least_compute, in_mib(memory or 0))) is None:
        raise InvalidInput("it takes nothing of a GPU")
    return found


def _needed(choice: RequestChoice, ledger: ClaimLedger) -> tuple[int, int]:
    """Return the least compute and MiB of a GPU for a request."""
    compute, memory = (_requested(choice, ledger, name) for name in (ledger.names.compute, ledger.names.memory))
    return milli(compute or 0), milli(memory or 0) // MIB_MILLI


def _is_in(needed: tuple[int, int, int], gpus: Sequence[LedgerGpu]) -> bool:
    compute, mib, count = needed
    return sum(gpu.compute >= compute and gpu.memory_mib >= mib for gpu in gpus) >= count


def _requested(choice: RequestChoice, ledger: ClaimLedger, name: str) -> Quantity | None:
    """Return how much a request takes of a capacity; None: all of it."""
    for gpu in (each[0] for each in ledger.nodes.values()):
        driver = gpu.id[0]
        if (asked := named(driver, choice.capacity.requests, name)) is not None:
            return asked
        if (capacity := named(driver, gpu.device.capacity, name)) is not None:
            return capacity.request_policy.default
    return None


def _given(gpu: LedgerGpu, consumed: Mapping[str, Quantity], names: CapacityNames) -> GpuRequest | None:
    """Return what a claim has of a GPU; None: nothing that counts."""
    driver = gpu.id[0]
    compute, memory = (named(driver, consumed, name) or 0 for name in (names.compute, names.memory))
    share = milli(compute) * MILLI_PER_DEVICE // gpu.compute if gpu.compute else 0
    return _request(share, MILLI_PER_DEVICE, milli(memory) // MIB_MILLI)


def _request(compute: int, whole: int, memory_mib: int) -> GpuRequest | None:
    """Return so much compute of a GPU that has `whole`, and memory; None: it is nothing."""
    share = -(-compute * MILLI_PER_DEVICE // whole) if whole else 0
    if share >= MILLI_PER_DEVICE:
        return WHOLE
    return GpuRequest(milli=share, memory_mib=memory_mib) if share > 0 or memory_mib > 0 else None
