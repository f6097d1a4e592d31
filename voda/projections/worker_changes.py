"""The changes a job goes through: starts, resizes, migrations.

Rule: whatever is seen at one instant is one change of the job.
"""

from collections.abc import Iterable, Mapping

from msgspec import Struct
from msgspec.structs import replace

from voda.events.types import ExitCause


class WorkerChanges(Struct, kw_only=True):
    """The workers of one job, and what their changes came to; changed in place."""

    workers: dict[int, str] = {}
    moving: dict[int, str] = {}
    """Workers that left to be moved -> node they left; they count as being there until they arrive."""
    settled: dict[int, str] = {}
    """Workers before the changes of the instant `changed_at`."""
    changed_at: float = 0.0
    first_started_at: float | None = None
    starts: int = 0
    resizes: int = 0
    migrations: int = 0
    workers_moved: int = 0
    restarts: int = 0
    was_spanning: bool = False

    def begin(self, now: float) -> None:
        """Get ready for a change at `now`."""
        if now != self.changed_at:
            self.settle()
            self.changed_at = now

    def come(self, workers: Mapping[int, str]) -> None:
        """Let workers start; call `begin` first."""
        for index in workers:
            self.moving.pop(index, None)
        self.workers.update(workers)

    def go(self, gone: Iterable[int], cause: ExitCause) -> None:
        """Let workers exit; call `begin` first."""
        for index in gone:
            node = self.workers.pop(index, None)
            if cause == "finished":
                # A worker that is done is no loss that would cost the others a restart.
                self.settled.pop(index, None)
            if cause != "migrated":
                self.moving.pop(index, None)
            elif node is not None:
                self.moving[index] = node

    def settle(self) -> None:
        """Count what the changes of the last instant came to in the end."""
        before, after = self.settled, self.moving | self.workers
        if before == after:
            return
        self.settled = after
        if not after:
            return
        self.was_spanning = self.was_spanning or len(set(after.values())) > 1
        if self.first_started_at is None:
            self.first_started_at = self.changed_at
        else:
            self.restarts += 1
        if not before:
            self.starts += 1
            return
        moved = sum(1 for index, node in after.items() if before.get(index, node) != node)
        self.resizes += len(before) != len(after)
        self.migrations += moved > 0
        self.workers_moved += moved

    def so_far(self) -> "WorkerChanges":
        """Return what it came to if nothing more happens at this instant."""
        now = replace(self)
        now.settle()
        return now
