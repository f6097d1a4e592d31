"""The devices that a job's workers hold, from the claim until the last process that could use them is gone.

Rules: a grant is written before a worker is named to the launcher, and revoked before the worker is; a worker's
devices are free, and its exit is reported, only once no process of it is left. When in doubt there is one: a lock
shows the processes that came in by the shim or the agent, the mark in the environment those that they started, and
CUDA_VISIBLE_DEVICES those that a launcher started by itself. They are looked for in a thread, once the locks are free.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from functools import partial
from typing import Final

from voda.cluster.local import rendezvous
from voda.cluster.local.command import limits_of, visible
from voda.cluster.local.context import FIND_S, TRY_AGAIN_S, JobState, LocalContext
from voda.cluster.local.exit_policy import FORGIVEN_S, restart_in_s
from voda.cluster.local.job_replicas import JobReplicas
from voda.cluster.local.processes.marked import MarkedProcess
from voda.cluster.local.run_spec import LAUNCHER, RunSpec
from voda.domain.errors import ClusterUnavailable
from voda.domain.job import JobSpec
from voda.domain.plan import StartJob
from voda.domain.reasons.pods import WorkerGone
from voda.events.types import RETRIED_CAUSES, ExitCause, ShareAssigned, ShareReleased, WorkerExited
from voda.untrusted_files import UnsafeFile

_SPARE_S: Final = 5.0
"""On top of a job's grace: what an elastic launcher needs to notice that a worker leaves."""
_log = logging.getLogger(__name__)


class DeviceHolders:
    """Which devices the workers of one job hold, and which of them have to give theirs back.

    `settle` is called once the processes of leaving workers have been looked for.
    """

    def __init__(self, state: JobState, replicas: JobReplicas, *, settle: Callable[[], None]) -> None:
        self._state = state
        self._replicas = replicas
        self._settle = settle
        self._is_looking = False
        self._looked_for: Set[int] = frozenset()
        """The leaving workers that may have been without a process as the look began: of others it may have come too
        early."""
        self._found: Sequence[MarkedProcess] | None = None
        """The processes that were just found, while `settle` acts on them."""
        self._kill_at: dict[int, float] = {}
        """Loop time at which a leaving worker of a launcher is killed."""
        self._swept: set[int] = set()
        """Leaving workers of which the holders of a lock that users may take were killed."""
        self._causes: dict[int, tuple[ExitCause, int | None]] = {}

    def take(self, run_spec: RunSpec, new: Sequence[int], size: int, start: StartJob | None = None) -> None:
        """Take devices for new workers of a job of that size, record it and let their processes in; or change nothing.
        `start` says which GPU it may share; None: any.

        Raises:
            ActionRefused: there are too few.
            UnsafeFile: something else lies where voda writes.
            ClusterUnavailable: the folder cannot be written.
        """
        context, record = self._state.context, self._state.record
        devices = self._take_devices(run_spec, new, start)
        before = record.state, record.size, record.sized_at, record.ran_size
        try:
            self._record(run_spec, devices, size)
            self._write_files(run_spec)
        except OSError as error:
            for index, names in devices.items():
                context.slots.release(record.job_id, index, names)
                record.devices.pop(index, None)
            self._release_share()
            record.state, record.size, record.sized_at, record.ran_size = before
            self._withdraw(new)
            if isinstance(error, UnsafeFile):
                raise
            raise ClusterUnavailable(f"job {record.job_id}: its folder cannot be written: {error}") from error
        if record.share is not None:
            pod = pod_of(run_spec.spec)
            shares = context.slots.hold_share(record.job_id, pod, record.share, record.share_device)
            context.tell(ShareAssigned(node=context.node, pod_uid=record.job_id, pod=pod, containers=shares))
        self._set_launcher_limits()

    def _take_devices(
        self, run_spec: RunSpec, new: Sequence[int], start: StartJob | None
    ) -> Mapping[int, tuple[str, ...]]:
        """Return worker index -> the devices that it gets whole; note the part of a job that asks for a part of one."""
        context, record, spec = self._state.context, self._state.record, run_spec.spec
        if spec.share is None:
            return context.slots.take(
                record.job_id, new, spec.gpus_per_replica, barred=context.barred, node=context.node
            )
        record.share_device = context.slots.choose_for_share(
            record.job_id,
            spec.share,
            barred=context.barred,
            node=context.node,
            beside=start.beside if start is not None else None,
        )
        record.share = spec.share
        context.slots.hold_share(record.job_id, pod_of(spec), record.share, record.share_device)
        return dict.fromkeys(new, ())

    def _release_share(self) -> bool:
        """Give the job's part of a GPU back, and return whether it had one."""
        self._state.record.share, self._state.record.share_device = None, ""
        return self._state.context.slots.release_share(self._state.record.job_id)

    def terminate(self, workers: Iterable[int]) -> None:
        """Let no more processes of these workers in, and tell those that run to end."""
        record, leaving = self._state.record, set(workers)
        record.leaving |= leaving
        self._state.save()
        names = self._state.replicas_of(leaving)
        for name in names if record.wanted else (*names, LAUNCHER):
            self._revoke(name)
        for index in leaving:
            self._kill_at.setdefault(index, _loop_time() + record.grace_s + _SPARE_S)
        if record.kind == "torch":
            self._replicas.stop(names)
        elif record.wanted:
            self.refresh_files()

    def note_cause(self, workers: Iterable[int], cause: ExitCause, exit_code: int | None = None) -> None:
        """Remember why these workers exit, for the report once they are gone."""
        self._causes.update(dict.fromkeys(workers, (cause, exit_code)))

    def note_node_loss(self) -> None:
        """Remember that the workers exit with their machine, but for those whose cause is known."""
        self._causes = {**dict.fromkeys(self._state.record.devices, ("node_lost", None)), **self._causes}

    def refresh_files(self) -> None:
        """Write the files that tell a launcher of its workers anew, now or a little later."""
        if (run_spec := self._state.run_spec()) is None:
            return
        try:
            self._write_files(run_spec)
        except UnsafeFile as error:
            _log.warning("job_id=%s its launcher is not told of its workers: %s", self._state.record.job_id, error)
        except OSError as error:
            _log.warning("job_id=%s its folder cannot be written: %s", self._state.record.job_id, error)
            self._state.later(TRY_AGAIN_S, self.refresh_files)

    def release_vacant(self) -> None:
        """Free the devices of the leaving workers that have no process left, and report their exits; first look for the
        processes of those whose locks are free.
        """
        self._stop_late_shims()
        if self._found is not None:
            self._release(self._vacant(self._found))
        elif not self._is_looking and (looked_for := _may_be_vacant(self._state, self._replicas)):
            self._is_looking, self._looked_for = True, looked_for
            self._state.context.in_thread(self._state.folder.find_processes, self._act_on, within_s=FIND_S)

    def _act_on(self, found: Sequence[MarkedProcess] | None) -> None:
        if found is None:
            # Whatever keeps them from being found may last.
            self._looked_for = frozenset()
            self._state.later(TRY_AGAIN_S, partial(self._act_on, ()))
            return
        # Only now: what is done later looks again.
        self._is_looking, self._found = False, found
        try:
            self._settle()
        finally:
            self._found = None

    def _release(self, vacant: Sequence[int]) -> None:
        record, context = self._state.record, self._state.context
        by_cause: dict[tuple[ExitCause, int | None], list[int]] = {}
        for index in vacant:
            context.slots.release(record.job_id, index, record.devices.pop(index))
            record.leaving.discard(index)
            self._kill_at.pop(index, None)
            self._swept.discard(index)
            by_cause.setdefault(self._causes.pop(index, (record.cause, None)), []).append(index)
        has_released = not record.devices and self._release_share()
        if by_cause or has_released:
            self._state.save()
        if has_released:
            spec = context.config.jobs(record.job_id)
            pod = pod_of(spec) if spec is not None else ""
            context.tell(ShareReleased(node=context.node, pod_uid=record.job_id, pod=pod, reason=WorkerGone()))
        if by_cause:
            self._set_launcher_limits()
        pause_s = 0.0 if record.ended else restart_in_s(record, context.now())
        retry_at = context.now() + pause_s if pause_s else None
        for (cause, code), gone in by_cause.items():
            context.tell(
                WorkerExited(
                    job_id=record.job_id,
                    workers=tuple(gone),
                    cause=cause,
                    exit_code=code,
                    retry_at=retry_at if cause in RETRIED_CAUSES else None,
                )
            )

    def _set_launcher_limits(self) -> None:
        """Let the launcher have as much as its workers may, which are processes of it."""
        state, run_spec = self._state, self._state.run_spec()
        if state.record.kind != "mpi" or run_spec is None:
            return
        try:
            state.context.config.cgroups.change(state.group(LAUNCHER), limits_of(state, run_spec, LAUNCHER))
        except OSError as error:
            # The kernel takes no memory away that is in use.
            _log.warning("job_id=%s its limits stay as they were: %s", state.record.job_id, error)

    def _record(self, run_spec: RunSpec, devices: Mapping[int, tuple[str, ...]], size: int) -> None:
        context, folder, record = self._state.context, self._state.folder, self._state.record
        folder.make(self._state.account)
        if not record.devices:
            record.port, record.generation = rendezvous.free_port() if run_spec.kind == "torch" else 0, ()
        if record.state != "running":
            record.resumed_at = context.now()
            record.done.clear()
        record.kind, record.gpus_per_replica = run_spec.kind, run_spec.spec.gpus_per_replica
        record.grace_s = min(run_spec.grace_s, context.config.settings().termination_grace_s)
        record.boot_id = context.boot_id
        record.devices |= devices
        record.state = "running"
        record.resize(size, context.now())
        folder.save(record)

    def _withdraw(self, new: Sequence[int]) -> None:
        if self._state.folder.load() is not None:
            for name in self._state.replicas_of(new):
                self._revoke(name)
            self._state.save()

    def _write_files(self, run_spec: RunSpec) -> None:
        """Write what a launcher and its workers need, as the record says; a PyTorchJob needs nothing."""
        if run_spec.kind != "mpi":
            return
        context, folder, record = self._state.context, self._state.folder, self._state.record
        rendezvous.write_agents(folder, run_spec.slots_per_worker, context.agent)
        for index in record.leaving:
            folder.replica(f"worker-{index}").revoke()
        for index in record.wanted:
            folder.replica(f"worker-{index}").grant(0, visible(context, record, [index]))
        rendezvous.write_devices(folder, visible(context, record, record.wanted))
        rendezvous.write_hosts(folder, run_spec, record.wanted, context.transport)

    def _revoke(self, name: str) -> None:
        try:
            self._state.folder.replica(name).revoke()
        except OSError as error:
            # It is told to end all the same, and a process that comes in later is killed with the rest.
            _log.warning("job_id=%s replica=%s its grant stays: %s", self._state.record.job_id, name, error)

    def _stop_late_shims(self) -> None:
        """Tell the shims of leaving workers to end that were not known when their workers were terminated.

        An earlier voda may have died in between, and a shim may come to its lock late.
        """
        if self._state.record.kind == "torch":
            names = self._state.replicas_of(self._state.record.leaving)
            for name in names:
                self._replicas.inspect(name)
            self._replicas.stop(names)

    def _vacant(self, found: Sequence[MarkedProcess]) -> Sequence[int]:
        """Return the leaving workers that have no process left; what outlived its shim is killed."""
        record, folder = self._state.record, self._state.folder
        leaving = sorted(record.leaving & self._looked_for)
        if record.kind == "torch":
            names = {index: self._state.replicas_of([index]) for index in leaving}
            return [
                index
                for index in leaving
                if not any(self._replicas.is_at_work(name) or folder.kill(found, name) for name in names[index])
            ]
        if record.state != "running" or record.ended:
            return () if self._replicas.is_at_work(LAUNCHER) or folder.kill(found) else leaving
        return [index for index in leaving if self._is_unused(index, found)]

    def _is_unused(self, index: int, found: Sequence[MarkedProcess]) -> bool:
        """Return whether no process is in a worker of a launcher that runs on; when its time is up, they are killed.

        A lock that the job's user may take counts for a while longer: its holders are killed, marked or not. One that
        is held even then is kept by another user, or taken again and again.
        """
        name, folder = f"worker-{index}", self._state.folder
        gpus = frozenset(visible(self._state.context, self._state.record, [index]))
        is_used = any(process.replica == name or process.gpus & gpus for process in found)
        if not is_used and not folder.replica(name).is_locked():
            return True
        late_s = _loop_time() - self._kill_at.get(index, 0.0)
        if late_s < 0:
            return False
        self._forgive()
        folder.kill(found, name)
        if not folder.replica(name).is_lock_users():
            return False
        if index not in self._swept:
            self._swept.add(index)
            find = folder.replica(name).find_users_lock_holders
            self._state.context.in_thread(find, lambda holders: folder.kill(holders or ()), within_s=FIND_S)
        return not is_used and late_s >= _SPARE_S

    def _forgive(self) -> None:
        """Record, before a worker is killed, that an exit of its launcher in the next seconds is no failure."""
        record, until = self._state.record, self._state.context.now() + FORGIVEN_S
        if until > record.forgiven_until + 1.0:
            record.forgiven_until = until
            self._state.save()


def _may_be_vacant(state: JobState, replicas: JobReplicas) -> Set[int]:
    """Return the leaving workers of which a look at the processes may show that they have none left."""
    record = state.record
    if record.kind == "torch":
        names = {index: state.replicas_of([index]) for index in record.leaving}
        return {index for index in names if not any(map(replicas.is_at_work, names[index]))}
    runs_on = record.state == "running" and not record.ended
    return set(record.leaving) if runs_on or not replicas.is_at_work(LAUNCHER) else frozenset()


def claim_of_left(context: LocalContext, left: Sequence[MarkedProcess]) -> dict[int, tuple[str, ...]]:
    """Return what a job whose record is gone holds, as that of one worker: the free GPUs that its processes name; empty
    where no process is left.
    """
    named = {gpu for process in left for gpu in process.gpus}
    free = context.slots.devices.keys() - context.slots.held()
    return {0: tuple(sorted(named & free))} if left else {}


def pod_of(spec: JobSpec) -> str:
    """Return the name of a job in the account of GPUs."""
    return f"{spec.namespace}/{spec.job_id}"


def _loop_time() -> float:
    return asyncio.get_running_loop().time()
