"""What is left of scarce resources: CPU, memory or any other of a node that its workers could use up (`view.scarce`).

Rule: most nodes have more of everything than workers on all of their GPUs ask for; those cost nothing here.
"""

from collections.abc import Iterable, Mapping

from voda.domain.job import Job
from voda.domain.node import demand_of


class ScarceResources:
    """What is left, by node and resource, in thousandths; below 0 where workers at work hold more than there is."""

    __slots__ = ("left",)

    def __init__(self, scarce: Mapping[str, Mapping[str, int]]) -> None:
        self.left = {node: dict(amounts) for node, amounts in scarce.items()}

    def take(self, job: Job, node: str, workers: int) -> None:
        """Use what workers ask for; a negative number gives it back."""
        if (amounts := self.left.get(node)) is not None:
            for resource, asked in demand_of(job.spec.needs).items():
                if resource in amounts:
                    amounts[resource] -= workers * asked

    def take_all(self, job: Job, placed: Mapping[str, int]) -> None:
        """Use what a job's workers ask for; `placed` is node -> workers."""
        for node, workers in placed.items() if self.left else ():
            self.take(job, node, workers)

    def has_room(self, job: Job, nodes: Iterable[str]) -> bool:
        """Return whether one of these nodes, which have GPUs free, may take one more worker of a job."""
        return any(not job.is_refused_by(node, 1) and self.most(job, node, 1) > 0 for node in nodes)

    def most(self, job: Job, node: str, most: int) -> int:
        """Return how many workers of a job fit on a node, `most` or fewer."""
        if (amounts := self.left.get(node)) is None:
            return most
        demand = demand_of(job.spec.needs).items()
        return min([most, *(amounts[resource] // asked for resource, asked in demand if asked and resource in amounts)])

    def is_overdrawn(self, node: str) -> bool:
        """Return whether workers hold more of a resource of a node than there is."""
        return min(self.left[node].values()) < 0

    def lacks_for(self, job: Job, node: str) -> bool:
        """Return whether workers hold more than there is of what the job asks for."""
        amounts = self.left.get(node, {})
        return any(amounts.get(resource, 0) < 0 for resource, asked in demand_of(job.spec.needs).items() if asked > 0)
