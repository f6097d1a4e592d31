"""A job's record, its folder and its run spec: what the parts of a local job share.

Rule: where the disk refuses the record, it is written a little later; what a crash then leaves out of it, the next
voda finds out by looking at the processes.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from voda.cluster.local.command import LAUNCHER
from voda.cluster.local.context import LocalContext
from voda.cluster.local.folder import JobFolder
from voda.cluster.local.record import LocalJobRecord
from voda.cluster.local.run_spec import RunSpec
from voda.domain.errors import ActionRefused

TRY_AGAIN_S: Final = 1.0
_log = logging.getLogger(__name__)


class JobState:
    """A job's record and where it lies; all parts of the job change the one record."""

    def __init__(self, context: LocalContext, folder: JobFolder, record: LocalJobRecord) -> None:
        self.context = context
        self.folder = folder
        self.record = record
        self.is_open = True

    def save(self, *, durably: bool = False) -> None:
        """Write the record, now or a little later; `durably` waits for the disk."""
        try:
            self.folder.save(self.record, durably=durably)
        except OSError as error:
            _log.warning("job_id=%s its record cannot be written: %s", self.record.job_id, error)
            self.later(TRY_AGAIN_S, self.save)

    def later(self, pause_s: float, act: Callable[[], None]) -> None:
        """Do something after a pause, unless the job is closed by then."""
        self.context.after(pause_s, lambda: act() if self.is_open else None)

    def run_spec(self) -> RunSpec | None:
        """Return what the job runs; None where the log does not know the job any more, or it cannot be run here."""
        try:
            return self.context.run_spec(self.record.job_id)
        except ActionRefused:
            return None

    def replicas_to_run(self) -> Sequence[str]:
        """Return the names of the replicas that shall run now."""
        record, run_spec = self.record, self.run_spec()
        if not record.wanted or run_spec is None:
            return ()
        if run_spec.kind == "mpi":
            return (LAUNCHER,)
        return [run_spec.replica_of(index) for index in record.wanted if index not in record.done]

    def replicas_of(self, workers: Iterable[int]) -> Sequence[str]:
        """Return the replicas that are these workers; all there are where the log does not know the job any more."""
        if self.record.kind == "mpi":
            return [f"worker-{index}" for index in workers]
        run_spec = self.run_spec()
        return [run_spec.replica_of(index) for index in workers] if run_spec else [*self.record.runs]
