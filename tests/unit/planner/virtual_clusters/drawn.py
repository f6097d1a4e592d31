"""Drawn sequences of what happens to a pool with virtual clusters."""

from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st
from msgspec.structs import replace

from tests.builders import a_node
from tests.unit.planner.virtual_clusters.pools import SWITCHES, a_pool, ended, reached, some_cells, submitted
from voda.domain.cells import PhysicalCellSpec
from voda.domain.sizes import JobSizes
from voda.domain.state import ClusterState

CLUSTERS = ("vision", "speech", "default")
NAMES = ("n1", "n2", "n3", "n4")
QUOTAS: tuple[dict[str, dict[str, int]], ...] = (
    {"vision": {"rack.node": 1}, "speech": {"rack.node": 1}},
    {"vision": {"rack": 1}, "speech": {"rack.node": 1}},
    {"vision": {"rack.node": 1, "rack.node.switch": 1}, "speech": {"rack.node": 1}},
    {"vision": {"rack.node": 2}, "speech": {"rack.node.switch": 3}},
)

PINS = {"vision": "lab"}
"""Only the first quotas have it."""
PHYSICAL = replace(
    SWITCHES,
    physical_cells=(
        SWITCHES.physical_cells[0],
        replace(
            SWITCHES.physical_cells[1],
            cell_children=(
                PhysicalCellSpec(cell_address="n3"),
                PhysicalCellSpec(cell_address="n4", pinned_cell_id="lab"),
            ),
        ),
    ),
)

JOB = st.fixed_dictionaries(
    {
        "cluster": st.sampled_from(CLUSTERS),
        "priority": st.sampled_from((-1, 0, 0, 0, 5)),
        "min_replicas": st.integers(1, 4),
        "more": st.integers(0, 6),
        "gpus_per_replica": st.sampled_from((1, 1, 2, 4)),
        "is_pinned": st.booleans(),
        "step": st.sampled_from((1, 1, 2, 3)),
    }
)
STEP = st.one_of(
    st.tuples(st.just("submit"), JOB),
    st.tuples(st.just("submit"), JOB),
    st.tuples(st.just("end"), st.integers(0, 20)),
    st.tuples(st.just("lose"), st.sampled_from(NAMES)),
    st.tuples(st.just("cordon"), st.sampled_from(NAMES)),
    st.tuples(st.just("silence"), st.sampled_from(NAMES)),
    st.tuples(st.just("mend"), st.sampled_from(NAMES)),
    st.tuples(st.just("apply"), st.sampled_from(QUOTAS)),
    st.tuples(st.just("reach"), st.none()),
)
STEPS = st.lists(STEP, min_size=1, max_size=14)
NODE_IS: dict[str, dict[str, bool]] = {
    "lose": {"is_draining": True},
    "cordon": {"is_schedulable": False},
    "silence": {"is_ready": False},
    "mend": {},
}
"""What a node is after a step."""


@dataclass
class Pool:
    """A pool that lives through drawn steps, and what the last one was about."""

    state: ClusterState
    number: int = 0
    concerns: set[str] = field(default_factory=set)
    """Virtual clusters that the last step is about."""

    def take(self, kind: str, value: Any) -> None:
        self.concerns = set()
        if kind == "submit":
            self.number += 1
            fields = {name: value[name] for name in ("priority", "min_replicas", "gpus_per_replica")}
            sizes = JobSizes.of(
                range(value["min_replicas"], value["min_replicas"] + value["more"] + 1, value.get("step", 1))
            )
            fields["sizes"], most = None if sizes.is_dense else sizes, sizes.most
            if value["is_pinned"] and value["cluster"] in PINS and value["priority"] >= 0:
                fields["pinned_cell"] = PINS[value["cluster"]]
            self.state = submitted(self.state, f"j{self.number}", value["cluster"], max_replicas=most, **fields)
            self.concerns = {value["cluster"]}
        elif kind == "end" and self.state.jobs:
            job_id = sorted(self.state.jobs)[value % len(self.state.jobs)]
            self.concerns = {self.state.jobs[job_id].spec.virtual_cluster}
            self.state = ended(self.state, job_id)
        elif kind in NODE_IS:
            silent = {name: since for name, since in self.state.silent_since.items() if name != value}
            silent |= {value: 0.0} if kind == "silence" else {}
            nodes = {**self.state.nodes, value: a_node(value, **NODE_IS[kind])}
            self.state = replace(self.state, nodes=nodes, silent_since=silent)
            self.concerns = set(CLUSTERS)
        elif kind == "apply":
            self.state = replace(self.state, cells=some_cells(value, physical=PHYSICAL, pins=pins_of(value)))
            self.concerns = set(CLUSTERS)
        elif kind == "reach":
            self.state = reached(self.state)


def a_new_pool() -> Pool:
    state = a_pool(QUOTAS[0], nodes=[a_node(name) for name in NAMES])
    return Pool(replace(state, cells=some_cells(QUOTAS[0], physical=PHYSICAL, pins=PINS)))


def pins_of(quotas: dict[str, dict[str, int]]) -> dict[str, str]:
    return PINS if quotas == QUOTAS[0] else {}
