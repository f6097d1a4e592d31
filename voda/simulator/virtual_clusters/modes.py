"""The clusters that are simulated: shared in cells or in numbers, or private; of rigid or elastic jobs.

Rule: all run the production planner on the same jobs; a private cluster is a pool of one virtual cluster, which has as
many nodes as its quota.
"""

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from voda.domain.cells import DEFAULT_VIRTUAL_CLUSTER, CellsSpec, VirtualClusterSpec
from voda.domain.errors import InvalidInput
from voda.events.types import AnyFact, VirtualClustersApplied
from voda.policies import POLICIES, Policy
from voda.simulator.engine import InitialState, Simulation, SimulationOptions, opening_facts
from voda.simulator.virtual_clusters.rigid import rigid
from voda.simulator.virtual_clusters.sharing_rules import nothing_lent, number_quotas
from voda.simulator.workload import Workload


class Mode(StrEnum):
    """How virtual clusters share."""

    PRIVATE = "private"
    NUMBERS = "numbers"
    CELLS = "cells"
    """As HiveD has it for guaranteed jobs: they run in their own virtual cluster's cells alone."""
    CELLS_LENT = "cells-lent"
    """Idle cells are lent to whole jobs."""
    PRIVATE_ELASTIC = "private-elastic"
    CELLS_ELASTIC = "cells-elastic"
    """Idle cells are lent, to elastic jobs as to others."""

    @property
    def is_private(self) -> bool:
        return self in BASELINES.values()

    @property
    def is_elastic(self) -> bool:
        return self in (Mode.PRIVATE_ELASTIC, Mode.CELLS_ELASTIC)

    @property
    def lends(self) -> bool:
        return self not in (Mode.PRIVATE, Mode.NUMBERS, Mode.CELLS)


BASELINES: Final = {
    Mode.NUMBERS: Mode.PRIVATE,
    Mode.CELLS: Mode.PRIVATE,
    Mode.CELLS_LENT: Mode.PRIVATE,
    Mode.CELLS_ELASTIC: Mode.PRIVATE_ELASTIC,
}
"""Shared mode -> the private clusters of the same jobs."""
_WHY_DEFAULT: Final = " (jobs of a workload without a column virtual_cluster are in it)"


class SharedWorkload(Struct, frozen=True, kw_only=True):
    """Jobs, their nodes, and the virtual clusters that share them."""

    workload: Workload
    cells: CellsSpec
    nodes: Mapping[str, int]
    """Virtual cluster -> whole nodes that it is guaranteed."""
    node_gpus: int


def shared_workload(workload: Workload, cells: CellsSpec) -> SharedWorkload:
    """Return a workload with its virtual clusters.

    Raises:
        InvalidInput: nodes are not equal, a quota is not of whole nodes, or jobs are in a virtual cluster that is not
            there, or does not hold them.
    """
    sizes = {int(node.gpus) for node in workload.nodes}
    if len(sizes) != 1:
        raise InvalidInput("virtual clusters are compared on equal nodes: name some, such as --nodes 279x8")
    nodes = {name: _whole_nodes(name, spec) for name, spec in cells.virtual_clusters.items()}
    if not any(nodes.values()):
        raise InvalidInput("the file gives no virtual cluster nodes, expected such as vision: {cells: {node: 2}}")
    if (owed := sum(nodes.values())) > len(workload.nodes):
        raise InvalidInput(f"the virtual clusters have {owed} nodes, and the cluster has {len(workload.nodes)}")
    shared = SharedWorkload(workload=workload, cells=cells, nodes=nodes, node_gpus=next(iter(sizes)))
    for arrival in workload.arrivals:
        name = arrival.virtual_cluster or DEFAULT_VIRTUAL_CLUSTER
        if not nodes.get(name):
            why = _WHY_DEFAULT if name == DEFAULT_VIRTUAL_CLUSTER else ""
            raise InvalidInput(
                f"job {arrival.spec.job_id} is in virtual cluster {name}, to which the file gives no nodes: give it"
                f" some, such as {name}: {{cells: {{node: 2}}}}{why}"
            )
        if (gpus := arrival.spec.requested * arrival.spec.gpus_per_replica) > nodes[name] * shared.node_gpus:
            raise InvalidInput(
                f"job {arrival.spec.job_id} asks for {gpus} GPUs, and virtual cluster {name} has"
                f" {nodes[name] * shared.node_gpus}"
            )
    return shared


def _whole_nodes(name: str, spec: VirtualClusterSpec) -> int:
    if spec.pinned_cells or any(quota.cell_type != "node" for quota in spec.virtual_cells):
        raise InvalidInput(f"virtual cluster {name}: private clusters are of whole nodes, expected cells: {{node: N}}")
    return sum(quota.cell_number for quota in spec.virtual_cells)


def simulations(
    shared: SharedWorkload, mode: Mode, options: SimulationOptions
) -> Iterator[tuple[Workload, Simulation]]:
    """Yield what a mode consists of: one cluster, or one for each virtual cluster that has jobs."""
    workload = _workload(shared, mode)
    if not mode.is_private:
        yield workload, _simulation(shared, workload, mode, options)
        return
    for name, count in shared.nodes.items():
        arrivals = tuple(each for each in workload.arrivals if each.spec.virtual_cluster == name)
        if arrivals:
            own = replace(workload, name=name, arrivals=arrivals, nodes=workload.nodes[:count])
            clusters = {name: shared.cells.virtual_clusters[name]}
            alone = replace(shared, cells=replace(shared.cells, virtual_clusters=clusters))
            yield own, _simulation(alone, own, mode, options)


def _workload(shared: SharedWorkload, mode: Mode) -> Workload:
    arrivals = shared.workload.arrivals
    if not mode.is_elastic:
        arrivals = tuple(rigid(arrival, shared.node_gpus) for arrival in arrivals)
    return replace(
        shared.workload,
        arrivals=tuple(
            replace(
                each,
                spec=replace(each.spec, virtual_cluster=each.virtual_cluster or DEFAULT_VIRTUAL_CLUSTER),
            )
            for each in arrivals
        ),
    )


def _simulation(shared: SharedWorkload, workload: Workload, mode: Mode, options: SimulationOptions) -> Simulation:
    pool = workload.nodes[0].pool
    facts: list[AnyFact] = opening_facts(pool, workload, options)
    if mode is not Mode.NUMBERS:
        facts.append(VirtualClustersApplied(pool=pool, cells=_with_policies(shared.cells, options.settings.policy)))
    initial = InitialState(facts=tuple(facts))
    if mode.lends:
        return Simulation(workload, options, initial=initial)
    quotas = {name: count * shared.node_gpus for name, count in shared.nodes.items()}

    def policies(name: str) -> Policy:
        policy = POLICIES.choose(name)
        return number_quotas(policy, quotas) if mode is Mode.NUMBERS else nothing_lent(policy)

    return Simulation(workload, options, policies=policies, initial=initial)


def _with_policies(cells: CellsSpec, policy: str) -> CellsSpec:
    """Return virtual clusters that name a policy each: the pool's where they have none of their own."""
    clusters = {name: replace(spec, policy=spec.policy or policy) for name, spec in cells.virtual_clusters.items()}
    return replace(cells, virtual_clusters=clusters)
