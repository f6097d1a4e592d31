"""Runs commands beside the replicas of local jobs.

Rules: a command has what voda composed for its replica (account, groups, environment, control groups), not what /proc
shows of the running program, which may have changed that; it begins where the program began, entered as the job's user.
"""

from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

from msgspec.structs import replace

from voda.cluster.local.cluster import LocalCluster
from voda.cluster.local.command import command_of
from voda.cluster.local.exec.session import ExecSession, running_command
from voda.cluster.local.folder import replica_rank
from voda.cluster.local.job import LocalJob
from voda.cluster.local.processes.replica import ReplicaCommand
from voda.cluster.port import CommandRequest
from voda.domain.errors import ActionRefused, ClusterUnavailable, InvalidInput, WrongState
from voda.process_table import REPLICA_MARK


class LocalCommands:
    """An adapter of the RemoteCommands port; `clusters` returns those that this process leads, None: it leads none."""

    def __init__(self, clusters: Callable[[], Collection[LocalCluster] | None]) -> None:
        self._clusters = clusters

    async def replicas(self, job_id: str) -> Sequence[str]:
        job = self._job(job_id)
        return sorted(job.replicas.running(), key=replica_rank) if job is not None else ()

    @asynccontextmanager
    async def run(self, job_id: str, replica: str, request: CommandRequest) -> AsyncIterator[ExecSession]:
        job = self._job(job_id)
        running = job.replicas.running().get(replica) if job is not None else None
        if job is None or running is None:
            raise WrongState(f"job {job_id}: its replica {replica} does not run any more")
        async with AsyncExitStack() as stack:
            try:
                command, place = _command(job, replica, request), str(job.state.folder.replicas / replica)
                env = {**command.env, REPLICA_MARK: place}
                session = await stack.enter_async_context(running_command(request, command, env, running))
            except ValueError as error:
                raise InvalidInput(f"the command cannot be run: {error}") from error
            except ProcessLookupError:
                raise WrongState(f"job {job_id}: its replica {replica} has just ended, or is about to") from None
            except OSError as error:
                raise ClusterUnavailable(f"this machine cannot start a command now: {error.strerror}") from error
            yield session

    def _job(self, job_id: str) -> LocalJob | None:
        clusters = self._clusters()
        if not clusters:
            raise ClusterUnavailable("this voda does not run the jobs at this moment; ask the one that leads, or wait")
        return next((each.jobs[job_id] for each in clusters if job_id in each.jobs), None)


def _command(job: LocalJob, replica: str, request: CommandRequest) -> ReplicaCommand:
    """Return how a command runs beside a replica: with all that the replica has, where its program began."""
    state = job.state
    if not state.is_account_known or (run_spec := state.run_spec()) is None:
        raise ClusterUnavailable(f"job {state.record.job_id}: its account or its manifest is not known at this moment")
    try:
        command = command_of(state, run_spec, replica)
    except ActionRefused as error:
        raise WrongState(str(error)) from error
    cgroups = state.context.config.cgroups.groups(state.group(replica))
    return replace(command, argv=request.argv, cgroups=cgroups)
