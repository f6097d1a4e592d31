"""Where a pod was placed, in HiveD's annotations: written when it is bound, read back when voda starts anew.

Each pod carries the places of its whole gang, so that any one of them is enough to find the gang's cells again.
"""

from itertools import groupby
from typing import Final, NamedTuple

import msgspec
from msgspec import Struct

from voda.cells.gangs import GangPlacement, WorkerCells
from voda.domain.errors import InvalidInput
from voda.hived.pod_request import PREFIX, HivedPod, read_annotation
from voda.manifests.yaml_writer import manifest_yaml

BIND_INFO: Final = f"{PREFIX}pod-bind-info"
ISOLATION: Final = f"{PREFIX}pod-leaf-cell-isolation"


class _MemberPlacement(Struct, frozen=True, rename="camel"):
    physical_node: str
    physical_leaf_cell_indices: tuple[int, ...]
    preassigned_cell_types: tuple[str, ...] = ()

    def cells(self, chain: str) -> WorkerCells:
        types = self.preassigned_cell_types
        # One device without a quota cell makes it opportunistic, as in HiveD.
        quota = types[0] if types and all(types) else ""
        return WorkerCells(node=self.physical_node, devices=self.physical_leaf_cell_indices, chain=chain, quota=quota)


class _SameSize(Struct, frozen=True, rename="camel"):
    pod_placements: tuple[_MemberPlacement, ...]


class _BindInfo(Struct, frozen=True, rename="camel"):
    node: str
    leaf_cell_isolation: tuple[int, ...]
    cell_chain: str
    members: tuple[_SameSize, ...] = msgspec.field(name="affinityGroupBindInfo", default=())


class BoundPod(NamedTuple):
    """What a bound pod says of its gang."""

    placement: GangPlacement
    slot: int
    """The pod's own index in it."""


def bind_annotations(placement: GangPlacement, slot: int) -> dict[str, str]:
    """Return the annotations of a pod that is bound to its place."""
    own = placement[slot]
    members = [
        _SameSize(tuple(_pod_placement(cells) for cells in same))
        for _, same in groupby(placement, lambda cells: len(cells.devices))
    ]
    info = _BindInfo(own.node, own.devices, own.chain, tuple(members))
    return {
        ISOLATION: ",".join(map(str, own.devices)),
        BIND_INFO: manifest_yaml(msgspec.to_builtins(info)),
    }


def read_bound_pod(pod: HivedPod) -> BoundPod | None:
    """Return where a pod was placed; None where nobody has placed it.

    Raises:
        InvalidInput: the annotation is no YAML, lacks a value, or does not hold the pod's own place.
    """
    text = pod.annotation(BIND_INFO)
    if not text:
        return None
    info = read_annotation(BIND_INFO, text, _BindInfo)
    placements = [each.cells(info.cell_chain) for member in info.members for each in member.pod_placements]
    placement = tuple(sorted(placements, key=lambda cells: len(cells.devices)))
    own = (info.node, info.leaf_cell_isolation)
    slot = next((i for i, cells in enumerate(placement) if (cells.node, cells.devices) == own), None)
    if slot is None:
        devices = ",".join(map(str, info.leaf_cell_isolation))
        raise InvalidInput(f"annotation {BIND_INFO}: devices {devices} of node {info.node} are no place of its gang")
    return BoundPod(placement, slot)


def _pod_placement(cells: WorkerCells) -> _MemberPlacement:
    return _MemberPlacement(cells.node, cells.devices, (cells.quota,) * len(cells.devices))
