"""When a Job of batch/v1 has succeeded by its successPolicy, by the indices that have. Pure.

Rule: as Kubernetes defines it: a rule with both fields needs so many of the named indices, one without a count all.
"""

from collections.abc import Set

from voda.domain.job import MOST_REPLICAS
from voda.kubernetes_client.metadata import KubeRecord


def indices(text: str) -> Set[int]:
    """Return the replicas that a Job writes as `0,3-5`."""
    found: set[int] = set()
    for each in text.split(","):
        first, _, last = each.partition("-")
        if first.isdecimal() and (last or first).isdecimal():
            found.update(range(int(first), min(int(last or first), MOST_REPLICAS) + 1))
    return found


class SuccessRule(KubeRecord, frozen=True):
    succeeded_indexes: str | None = None
    succeeded_count: int | None = None

    def is_met_by(self, done: Set[int]) -> bool:
        """Return whether a Job of which these replicas succeeded has succeeded by this rule."""
        counted = done if self.succeeded_indexes is None else done & indices(self.succeeded_indexes)
        if self.succeeded_count is not None:
            return len(counted) >= self.succeeded_count
        return self.succeeded_indexes is not None and counted == indices(self.succeeded_indexes)


class SuccessPolicy(KubeRecord, frozen=True):
    rules: tuple[SuccessRule, ...] = ()
