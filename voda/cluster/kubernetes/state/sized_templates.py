"""Templates of claims whose name says how much they ask for: voda-gpu-core-25-memory-4096. Pure.

The chart's policy has pods that ask for gpu-core (hundredths of a card) and gpu-memory (MiB) ask after such templates.

Rule: name and cards decide what a template asks for; compute is a share of the smallest card, as everywhere for claims.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

import msgspec

from voda.cluster.kubernetes import well_known
from voda.cluster.kubernetes.device_objects import RequestChoice
from voda.cluster.kubernetes.objects import Pod
from voda.cluster.kubernetes.state.claim_requests import request_of_choice
from voda.cluster.kubernetes.state.shared_cards import SharedCards
from voda.domain.errors import InvalidInput
from voda.domain.gpus import MILLI_PER_DEVICE, GpuRequest, request_of_core

_NAME: Final = re.compile(r"voda-gpu-core-(0|[1-9][0-9]{0,18})-memory-(0|[1-9][0-9]{0,18})")
_REQUEST: Final = "gpu"
_MANAGED_BY: Final = {"app.kubernetes.io/managed-by": "voda"}


def missing_templates(pod: Pod) -> Sequence[str]:
    """Return the names of such templates after which claims of a gated pod are still to be made."""
    if well_known.SHARE_GATE not in pod.gates or not (missing := pod.missing_claims):
        return ()
    names = (each.resource_claim_template_name for each in pod.spec.resource_claims if each.name in missing)
    return sorted({name for name in names if _NAME.fullmatch(name)})


def sized_template(name: str, namespace: str, classes: Collection[str], cards: SharedCards) -> Mapping[str, Any]:
    """Return the template of a name that `missing_templates` returns.

    Args:
        name: its name.
        namespace: where it is to be.
        classes: the device classes of cards that are there, the first of which it asks for.
        cards: all that there are.

    Raises:
        InvalidInput: nobody can have so much, and why, one sentence.
    """
    try:
        request = _request(name)
        if not classes:
            raise InvalidInput("no device class of cluster.gpuDeviceClasses is there")
        exactly = {"deviceClassName": next(iter(classes)), **_device_request(request, cards)}
        read = request_of_choice(msgspec.convert(exactly, RequestChoice), cards)
        if read.devices != request.devices:
            raise InvalidInput("the driver gives a part of a card to those who claim a whole one")
    except InvalidInput as error:
        raise InvalidInput(f"ResourceClaimTemplate {name} cannot be made: {error}") from error
    spec = {"spec": {"devices": {"requests": [{"name": _REQUEST, "exactly": exactly}]}}}
    metadata = {"name": name, "namespace": namespace, "labels": _MANAGED_BY}
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate", "metadata": metadata, "spec": spec}


def _request(name: str) -> GpuRequest:
    found = _NAME.fullmatch(name)
    assert found is not None
    try:
        request = request_of_core(int(found[1]), int(found[2]))
    except ValueError as error:
        raise InvalidInput(str(error)) from error
    if not request.count:
        raise InvalidInput("it asks for nothing")
    return request


def _device_request(request: GpuRequest, cards: SharedCards) -> Mapping[str, Any]:
    if request.devices:
        return {"allocationMode": "ExactCount", "count": request.devices}
    sizes, names = cards.sizes, cards.names
    for amount, least, name in (
        (request.milli, sizes.most_compute, names.compute),
        (request.memory_mib, sizes.most_mib, names.memory),
    ):
        if amount and not least:
            raise InvalidInput(f"no device that claims share has a capacity {name}")
    # What a request leaves out it takes all of, and what a device lacks nobody may ask of it.
    capacities = {}
    if sizes.most_compute:
        capacities[names.compute] = _in_units(request.milli, sizes.least_compute)
    if sizes.most_mib:
        capacities[names.memory] = f"{request.memory_mib}Mi"
    return {"capacity": {"requests": capacities}}


def _in_units(milli: int, whole: int) -> str:
    """Return a share of what a card has, in thousandths of the driver's units, as a quantity; rounded up."""
    units, thousandths = divmod(-(-milli * whole // MILLI_PER_DEVICE), 1000)
    return f"{units * 1000 + thousandths}m" if thousandths else str(units)
