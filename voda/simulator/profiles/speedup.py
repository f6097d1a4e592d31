"""A job known by its work and its speedup: what voda-exp, Philly, the generator and a user's CSV are made of.

Rule: an epoch takes as long as any other; only the number of replicas and whether they span nodes matters.
"""

from collections.abc import Sequence

from msgspec import Struct

from voda.simulator.profiles.base import Costs


class SpeedupProfile(Struct, frozen=True, kw_only=True):
    """Work on one replica, and how many times faster n replicas do it."""

    epochs: int
    work_s: float
    """Seconds that all epochs take together on one replica."""
    speedup: Sequence[float]
    """T(n): shape (max_replicas + 1,); T(0) = 0 and T(1) = 1."""
    span_penalty: float = 0.0
    """Share by which an epoch takes longer when the replicas span nodes."""
    costs: Costs = Costs()

    def epoch_s(self, epoch: int, per_node: tuple[int, ...]) -> float:
        """Return the seconds of one epoch on this placement."""
        one_replica_s = self.work_s / self.epochs
        penalty = 1.0 + self.span_penalty if len(per_node) > 1 else 1.0
        return one_replica_s * penalty / self.speedup[sum(per_node)]


def speedup_law(a: float, b: float, max_replicas: int) -> tuple[float, ...]:
    """Return T(n) = n / (1 + a (n-1) + b n (n-1)) for n in 0..max_replicas.

    Args:
        a: serial share, >= 0: alone it bounds T(n) by 1/a (Amdahl).
        b: cost of talking to each other, >= 0: with it T(n) falls again beyond n = sqrt((1-a)/b).
        max_replicas: >= 1.

    Source: Gunther's Universal Scalability Law.
    """
    return (0.0, *(n / (1.0 + a * (n - 1) + b * n * (n - 1)) for n in range(1, max_replicas + 1)))
