"""Who measures the work on a cluster.

Rule: whoever measures changes nothing, and raises nothing.
"""

from typing import Protocol


class ClusterObserver(Protocol):
    """Takes note of what is done."""

    def drifted(self, collection: str, objects: int) -> None:
        """Take note of a periodic relist, and of how many objects it had to heal."""
        ...

    def bound(self) -> None:
        """Take note that a worker was bound."""
        ...

    def binding_took(self, seconds: float) -> None:
        """Take note of how long it took to bind the workers of a job that were due together, or to try."""
        ...

    def refused(self) -> None:
        """Take note that a planned node could not take workers."""
        ...

    def launcher_refreshed(self) -> None:
        """Take note that a launcher was made to look at its hosts."""
        ...


class Unobserved:
    """Nobody measures."""

    def drifted(self, collection: str, objects: int) -> None:
        """See Observer."""

    def bound(self) -> None:
        """See Observer."""

    def binding_took(self, seconds: float) -> None:
        """See Observer."""

    def refused(self) -> None:
        """See Observer."""

    def launcher_refreshed(self) -> None:
        """See Observer."""
