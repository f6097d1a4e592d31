"""Cells and virtual clusters as an operator specifies them, in the shape of HiveD's configuration, and as the log keeps
them; and gangs of pods that have cells.

Rule: whatever is not understood is refused with the path where it stands; nothing is left out in silence.
"""

from collections.abc import Mapping
from typing import Annotated, Final

import msgspec
from msgspec import Meta, Struct

from voda.domain.errors import InvalidField

DEFAULT_VIRTUAL_CLUSTER: Final = "default"
"""The virtual cluster of everybody, which owns what no other was given."""
EVERYBODY: Final = "*"
"""As a member of a virtual cluster."""
OPPORTUNISTIC: Final = -1
"""The priority of work outside of all guarantees."""


class CellTypeSpec(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel", omit_defaults=True):
    """What cells of one type consist of; a type that is not declared is one device."""

    child_cell_type: Annotated[str, Meta(min_length=1)]
    child_cell_number: Annotated[int, Meta(ge=1, le=65_536)]
    is_node_level: bool = False
    """Whether such a cell is one machine."""


class PhysicalCellSpec(
    Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel", omit_defaults=True
):
    """One cell and what is below it; children that are left out have default addresses."""

    cell_type: str = ""
    """Only the topmost cell must name it."""
    cell_address: str | int = ""
    """The name of a node, the index of a device; by default, the cell's index."""
    pinned_cell_id: str = ""
    cell_children: tuple["PhysicalCellSpec", ...] = ()


class PhysicalClusterSpec(
    Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel", omit_defaults=True
):
    """The cells that are there."""

    cell_types: Mapping[str, CellTypeSpec] = {}
    physical_cells: tuple[PhysicalCellSpec, ...] = ()
    sku_types: Mapping[str, Mapping[str, str | int | float]] = {}
    """CPU and memory per device, for HiveD's front ends; cells do not depend on it."""


class QuotaSpec(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel", omit_defaults=True):
    """So many cells of a type, named by the path from the top of its chain: `rack.node`."""

    cell_type: Annotated[str, Meta(min_length=1)]
    cell_number: Annotated[int, Meta(ge=0, le=1_000_000)]


class PinSpec(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel", omit_defaults=True):
    """One pinned cell."""

    pinned_cell_id: Annotated[str, Meta(min_length=1)]


class VirtualClusterSpec(
    Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel", omit_defaults=True
):
    """What one virtual cluster is guaranteed, and whose jobs it takes."""

    virtual_cells: tuple[QuotaSpec, ...] = ()
    pinned_cells: tuple[PinSpec, ...] = ()
    members: tuple[Annotated[str, Meta(min_length=1)], ...] = (EVERYBODY,)
    """Users, or `*`: as in HiveD, everybody is a member unless somebody is named."""
    policy: str = ""
    """By which its jobs share its quota; empty: the pool's."""

    @property
    def pins(self) -> tuple[str, ...]:
        """The ids of its pinned cells."""
        return tuple(pin.pinned_cell_id for pin in self.pinned_cells)

    def has_member(self, user: str) -> bool:
        """Return whether the jobs of a user may be in it."""
        return user in self.members or EVERYBODY in self.members


class CellsSpec(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel", omit_defaults=True):
    """The physical cells and how the virtual clusters share them."""

    physical_cluster: PhysicalClusterSpec = PhysicalClusterSpec()
    virtual_clusters: Mapping[str, VirtualClusterSpec] = {}

    def has_member(self, virtual_cluster: str, user: str) -> bool:
        """Return whether a virtual cluster takes jobs of a user; `default` is everybody's unless it names members."""
        spec = self.virtual_clusters.get(virtual_cluster)
        return virtual_cluster == DEFAULT_VIRTUAL_CLUSTER if spec is None else spec.has_member(user)

    def home_of(self, user: str) -> str:
        """Return the virtual cluster of a user's jobs that name none: the only one that the user is a member of, else
        `default`.
        """
        homes = [name for name, spec in self.virtual_clusters.items() if spec.has_member(user)]
        return homes[0] if len(homes) == 1 else DEFAULT_VIRTUAL_CLUSTER


def read_specification(document: object) -> CellsSpec:
    """Return the specification that a document (mappings and lists, as YAML gives them) holds.

    Raises:
        InvalidField: a key is unknown or missing, or a value is of another type; it says where.
    """
    try:
        return msgspec.convert(document, CellsSpec)
    except msgspec.ValidationError as error:
        sentence, _, path = str(error).partition(" - at ")
        field = path.strip("`").removeprefix("$").removeprefix(".")
        raise InvalidField(field, f"{field or 'the configuration'}: {sentence[0].lower()}{sentence[1:]}") from error


class GangRequest(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """What a gang asks for."""

    name: str
    virtual_cluster: str
    members: tuple[tuple[int, int], ...]
    """(workers, leafs of each), in any order."""
    priority: int = 0
    """OPPORTUNISTIC, or guaranteed from 0 to HIGHEST."""
    leaf_type: str = ""
    """Empty: any."""
    pin: str = ""
    """The pinned cell to use; it overrides the type."""
    yields: bool = False
    """Whether it may lose its guarantee, and go on as opportunistic work, instead of being preempted at once."""
    ignores_suggestions: bool = True
    """Whether nodes that the caller does not suggest may be used all the same."""

    @property
    def is_guaranteed(self) -> bool:
        """Whether it is placed in its virtual cluster's quota."""
        return self.priority > OPPORTUNISTIC

    @property
    def sizes(self) -> list[int]:
        """The leafs of each worker, ascending."""
        return sorted(leafs for workers, leafs in self.members for _ in range(workers))


class WorkerCells(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Where one worker is: what plans record, and all that a restart needs."""

    node: str
    devices: tuple[int, ...]
    chain: str
    quota: str = ""
    """The type of the quota cell that guarantees it; empty: opportunistic."""


GangPlacement = tuple[WorkerCells, ...]
"""The workers, in the order of GangRequest.sizes."""


class GangPod(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A pod that has its place in a gang."""

    uid: str
    key: str
    """`namespace/name`."""


class GangAllocation(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A gang of pods that voda does not make itself, and that has cells until its last pod is gone."""

    request: GangRequest
    placement: GangPlacement
    pods: Mapping[int, GangPod] = {}
    """Index in the placement -> the pod that has this place."""
