"""Jobs that run at the size that they asked for, or not at all, as in HiveD: their GPUs are together on nodes.

A job that fits on a node is one replica there; a larger one is equal replicas on as few nodes as possible.
"""

from msgspec import Struct
from msgspec.structs import replace

from voda.domain.gpus import Gpus
from voda.simulator.metrics import packed
from voda.simulator.workload import Arrival, Costs, Profile


class RigidProfile(Struct, frozen=True, kw_only=True):
    """A job at one size, at the speed that it has there on as few nodes as possible."""

    elastic: Profile
    per_node: tuple[int, ...]
    """Replicas of the elastic job on each node."""

    @property
    def epochs(self) -> int:
        return self.elastic.epochs

    @property
    def costs(self) -> Costs:
        return self.elastic.costs

    def epoch_s(self, epoch: int, per_node: tuple[int, ...]) -> float:
        return self.elastic.epoch_s(epoch, self.per_node)


def rigid(arrival: Arrival, node_gpus: int) -> Arrival:
    """Return a job that is not elastic; `node_gpus`: of the largest node."""
    spec, size = arrival.spec, arrival.spec.requested
    per_node = packed(size, spec.gpus_per_replica, (Gpus(node_gpus),) * size)
    gpus = size * spec.gpus_per_replica
    nodes = -(-gpus // node_gpus)
    replicas, each = (nodes, -(-gpus // nodes)) if spec.gpus_per_replica == 1 else (size, spec.gpus_per_replica)
    fixed = replace(
        spec,
        min_replicas=replicas,
        max_replicas=replicas,
        requested_replicas=replicas,
        gpus_per_replica=Gpus(each),
        category=f"{spec.history_category}-rigid",
    )
    return replace(arrival, spec=fixed, profile=RigidProfile(elastic=arrival.profile, per_node=per_node))
