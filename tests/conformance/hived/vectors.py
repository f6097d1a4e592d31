"""The files: configurations, and groups of operations with what HiveD answered."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct

Answer = Mapping[str, Any]
"""What an operation gives: `kind`, and what belongs to that kind."""
Groups = Mapping[str, Mapping[str, Any] | None]
"""Name -> the group's state; None = it is gone."""
FreeCells = Mapping[str, Mapping[str, int]]
"""Chain -> level -> free cells; levels without any are left out."""
BadCells = Mapping[str, Mapping[str, int]]
"""Virtual cluster -> chain@level -> bad quota cells."""
OpName = Literal[
    "schedule",
    "allocate",
    "delete_allocated",
    "delete_unallocated",
    "set_bad_node",
    "set_healthy_node",
    "reconfigure",
]


class Member(Struct, frozen=True, rename="camel"):
    """So many pods of a size."""

    pod_number: int
    leaf_cell_number: int


class AffinityGroup(Struct, frozen=True, rename="camel"):
    """A gang, in HiveD's words."""

    name: str
    members: tuple[Member, ...]


class PodSpec(Struct, frozen=True, rename="camel"):
    """A pod's request."""

    virtual_cluster: str = ""
    priority: int = 0
    pinned_cell_id: str = ""
    leaf_cell_type: str = ""
    leaf_cell_number: int = 0
    lazy_preemption_enable: bool = False
    ignore_k8s_suggested_nodes: bool = msgspec.field(name="ignoreK8sSuggestedNodes", default=True)
    affinity_group: AffinityGroup | None = None


class After(Struct, frozen=True, rename="camel"):
    """What an operation changed; what is not named stays as it was."""

    groups_changed: Groups = {}
    free_cells_by_chain_level: FreeCells | None = None
    bad_preassigned_virtual_cells: BadCells | None = None


class Operation(Struct, frozen=True, rename="camel"):
    """One call, HiveD's answer, and what was different afterwards."""

    op: OpName
    expect: Answer
    pod: str = ""
    node: str = ""
    config: str = ""
    spec: PodSpec | None = None
    suggested_nodes: Literal["all"] | Sequence[str] = "all"
    phase: Literal["filtering", "preempting"] = "preempting"
    after: After = After()
    asserted_by_hived_suite: bool = False
    nondeterministic: bool = False
    nondeterministic_state: bool = False
    alternatives: Sequence[Answer] = ()


class Load(Struct, frozen=True, rename="camel"):
    """What loading the configuration gives."""

    kind: str
    reason: str = ""
    nodes: Sequence[str] = ()
    free_cells_by_chain_level: FreeCells = {}
    bad_preassigned_virtual_cells: BadCells = {}


class Group(Struct, frozen=True, rename="camel"):
    """One scenario."""

    name: str
    config: str
    load: Load
    ops: Sequence[Operation] = ()
    nodes_start_bad: bool = False

    @property
    def is_weakness(self) -> bool:
        """Whether it records what is to be done better, and not to be matched."""
        return self.name.startswith("weakness_")


class Vectors(Struct, frozen=True):
    """One file."""

    configs: Mapping[str, Any]
    groups: Sequence[Group]


def read_vectors(path: Path) -> Vectors:
    """Return what a file holds."""
    return msgspec.json.decode(path.read_bytes(), type=Vectors)
