"""The port to what runs the workers: Kubernetes, this machine's processes, or a simulation.

Every adapter promises (tests/contract/test_cluster.py): an action can be repeated without harm; an action on a job
that is gone does nothing; `observe` shows what holds GPUs now, whether a plan wants it or not.
"""

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Annotated, Final, Protocol

from msgspec import Meta, Struct

from voda.domain.gpus import Gpus
from voda.domain.node import Node
from voda.domain.plan import Action
from voda.domain.shares import SharingNode
from voda.events.types import ExitCause, JobCancelRequested, JobCompleted, JobFailed, Observation

Notice = Observation | JobCancelRequested
"""What a cluster reports: observations, and that a user deleted a job there."""


class Observed(Struct, frozen=True, kw_only=True):
    nodes: Mapping[str, Node]
    workers: Mapping[str, Mapping[int, str]]
    """job id -> worker index -> node, for every worker that holds GPUs, starting and ending ones too."""
    gpus_per_replica: Mapping[str, Gpus]
    """job id -> GPUs held by each of its workers; for every job in `workers`."""
    ended: Mapping[str, JobCompleted | JobFailed] = {}
    """job id -> how it ended, of the jobs whose end the cluster still remembers."""
    exits: Mapping[str, Mapping[int, ExitCause]] = {}
    """job id -> worker index -> why it holds nothing any more, where the cluster still knows."""
    retries: Mapping[str, float] = {}
    """job id -> when the cluster may start workers of it again, seconds since the epoch, of jobs whose program failed
    a moment ago."""
    objects: Mapping[str, str] | None = None
    """job id -> uid of its object; None where the cluster keeps no objects of jobs."""
    starting: Collection[str] = ()
    """Ids of the live jobs that the cluster runs without GPUs yet, so that `workers` does not show them: their workers
    wait for room, or for each other."""
    sizes: Mapping[str, int] = {}
    """job id -> workers that the cluster keeps of it, where users can change that on the cluster too."""
    shares: Mapping[str, SharingNode] | None = None
    """Node -> which jobs have which parts of its GPUs, by job id; None where the cluster gives jobs no such parts."""
    underway: Mapping[str, Sequence[str]] = {}
    """job id -> nodes of its workers, where the cluster itself goes on until it has them there: to say it again is no
    use."""


class Cluster(Protocol):
    """A pool of nodes that runs workers."""

    async def observe(self) -> Observed:
        """Return what the cluster shows now, or raise ClusterUnavailable: try again."""
        ...

    async def set_desired(self, actions: Sequence[Action]) -> float:
        """Begin to bring jobs to what is desired of them; `observe` and `watch` show the outcome.

        What fails is reported by `watch`, once for each attempt, and holds up no other job. It is tried again, later
        each time, for as long as the same is desired; something else at once. Nothing of one job is raised.

        Args:
            actions: at most one for each job, in the order in which they begin; a job without one is as desired, or
                has to wait.

        Returns:
            When to say it again, in seconds since the epoch, since a job that paused may be tried then; infinity where
            none did, or where the cluster goes on by itself.
        """
        ...

    def watch(self) -> AsyncIterator[Notice]:
        """Yield what happens, as facts for the log, in the order it happened."""
        ...


class LineTimes(Struct, frozen=True, kw_only=True):
    """What the instants matter at which the lines of an output were printed."""

    since: float | None = None
    """Only lines that were printed then or later, seconds since the epoch; None = all."""
    are_shown: bool = False
    """Whether each line begins with its instant, RFC 3339, and a blank."""


EVERY_LINE: Final = LineTimes()


class Outputs(Protocol):
    """What the replicas of a cluster's jobs print."""

    async def replicas(self, job_id: str) -> Sequence[str]:
        """Return the names of the replicas that have output, the most telling one first; empty where none has."""
        ...

    def read(
        self,
        job_id: str,
        replica: str,
        *,
        tail_bytes: int | None,
        follow: bool,
        times: LineTimes = EVERY_LINE,
    ) -> AsyncIterator[bytes]:
        """Yield the output of one of a job's replicas, of a job that is or was here.

        Args:
            job_id: of the job.
            replica: one of `replicas`.
            tail_bytes: begin that far before the end, at a line's beginning; None = at the beginning.
            follow: go on until the job has ended.
            times: of the lines.

        Raises:
            InvalidInput: there is no such replica.
        """
        ...


_Cells = Annotated[int, Meta(ge=1, le=65_535)]


class TerminalSize(Struct, frozen=True, forbid_unknown_fields=True):
    columns: _Cells
    rows: _Cells


class CommandRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What to run beside a replica."""

    argv: Annotated[tuple[Annotated[str, Meta(max_length=131_072)], ...], Meta(min_length=1, max_length=4_096)]
    """The command is found by the replica's own PATH."""
    has_input: bool = False
    """Whether anything is written to its standard input; else that is empty."""
    terminal: TerminalSize | None = None
    """Where it runs on a terminal, whose output is one stream."""


class CommandOutput(Struct, frozen=True):
    data: bytes
    is_error: bool = False
    """Whether it is from standard error."""


class CommandEnd(Struct, frozen=True):
    status: int
    """As a shell counts it: 128 + the signal, 127 not found, 126 not to be run."""
    problem: str = ""
    """Why it could not be run, as a part of a sentence; empty where it ran."""


class RemoteCommand(Protocol):
    """A command that runs beside a replica."""

    async def read(self) -> CommandOutput | CommandEnd:
        """Return what it prints next, which it cannot do faster than this is called, or how it ended.

        Raises:
            ClusterUnavailable: how it ended is not known.
        """
        ...

    async def write(self, data: bytes) -> None:
        """Write to its standard input, waiting while it does not read; nothing once it has closed that."""
        ...

    async def end_input(self) -> None:
        """Let its standard input end."""
        ...

    async def resize(self, size: TerminalSize) -> None:
        """Tell its terminal another size; nothing where it has none."""
        ...


class RemoteCommands(Protocol):
    """What users run beside the replicas of a cluster's jobs, with their environment and rights."""

    async def replicas(self, job_id: str) -> Sequence[str]:
        """Return the names of a job's replicas that run, the most telling one first.

        Raises:
            ClusterUnavailable: this process does not know.
        """
        ...

    def run(self, job_id: str, replica: str, request: CommandRequest) -> AbstractAsyncContextManager[RemoteCommand]:
        """Run a command for the length of the block, beside one of `replicas`; it ends with the replica.

        It ends with the block, too.

        Raises:
            WrongState: the replica has ended, or is not ready.
            InvalidInput: the request holds what no command can have.
            ClusterUnavailable: try again.
        """
        ...
