"""The port by which the work on a cluster is measured.

Rule: an observer changes nothing, and raises nothing.
"""

from typing import Protocol


class ClusterObserver(Protocol):
    """Counts and times what is done."""

    def drifted(self, collection: str, objects: int) -> None:
        """Note of a periodic relist, and of how many objects it had to heal."""
        ...

    def bound(self) -> None:
        """Note that a worker was bound."""
        ...

    def binding_took(self, seconds: float) -> None:
        """Note of how long it took to bind the workers of a job that were due together, or to try."""
        ...

    def refused(self) -> None:
        """Note that a planned node could not take workers."""
        ...

    def launcher_refreshed(self) -> None:
        """Note that a launcher's list of hosts was refreshed."""
        ...


class Unobserved:
    """An observer that does nothing."""

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
