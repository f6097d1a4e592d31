"""What a local cluster is given, what its jobs share, the state of one job, and timers.

Rule: where the disk refuses a job's record, it is written a little later; what a crash then leaves out of it, the next
voda finds out by looking at the processes.
"""

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeVar

from voda.accounts import Account
from voda.clock import Clock
from voda.cluster.local.devices import Device, GpuMonitor, Slots
from voda.cluster.local.folder import JobFolder, LocalJobRecord
from voda.cluster.local.isolation.cgroups import Cgroups, group_name
from voda.cluster.local.rendezvous import Agent, Transport
from voda.cluster.local.run_spec import LAUNCHER, RunSpec, run_spec_of
from voda.domain.errors import ActionRefused
from voda.domain.job import JobSpec
from voda.domain.node import Node
from voda.domain.settings import Settings
from voda.events.types import Observation
from voda.metrics import NO_TELEMETRY, Telemetry
from voda.untrusted_files import UnsafeFile

LOG_BYTES: Final = 256 << 20
TRY_AGAIN_S: Final = 1.0
FIND_S: Final = 30.0
"""For finding the processes of a job; where it takes longer, they are looked for again."""
_MOST_THREADS: Final = 4
T = TypeVar("T")
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalClusterConfig:
    """What a local cluster is given."""

    node: Node
    """This machine, by its name and pool; `devices` says how many GPUs it has."""
    folder: Path
    """Holds all jobs' folders; several clusters may share it, each with its own pool and devices."""
    devices: Sequence[Device]
    """Handed out to workers: GPUs (find_gpus) or CPU slots (cpu_slots)."""
    clock: Clock
    jobs: Callable[[str], JobSpec | None]
    """job id -> the spec of a job that is live in the log; None for any other. It must be up to date before the cluster
    opens: restarted jobs are read from it, and an unknown job is forgotten once no process of it is left."""
    base: Mapping[str, str]
    """Environment that every process starts from."""
    environment: Callable[[JobSpec], Mapping[str, str]] = lambda _spec: {}
    """VODA_... variables of a job's processes."""
    account: Callable[[JobSpec], Awaitable[Account | None]] | None = None
    """Finds the account that a job runs with, None = that of the user who runs voda; InvalidInput where its owner has
    none, TransientError where it cannot be found now. Without this, all jobs run as the user who runs voda."""
    run_spec: Callable[[JobSpec], RunSpec] = run_spec_of
    health: GpuMonitor | None = None
    """Reads the GPUs' health; None without GPUs."""
    mps: Callable[[], str] = str
    """Returns the folder of the pipes of NVIDIA's MPS, for jobs with a part of a GPU; empty: it does not run."""
    transport: Transport | None = None
    """How mpirun gets into a worker; None: found out when the cluster opens."""
    cgroups: Cgroups = field(default_factory=Cgroups)
    """Where replicas get control groups; by default they have none."""
    pids_limit: int | None = None
    """Most processes and threads of a replica."""
    log_bytes: int = LOG_BYTES
    """Most bytes of one replica's output; of a longer one the last megabyte stays."""
    telemetry: Telemetry = NO_TELEMETRY
    settings: Callable[[], Settings] = Settings
    """Returns those of the pool."""


@dataclass(slots=True, kw_only=True)
class LocalContext:
    """What the jobs of a local cluster share; its owner is LocalCluster."""

    config: LocalClusterConfig
    slots: Slots
    tell: Callable[[Observation], None]
    transport: Transport = "rank"
    agent: Agent = field(default_factory=Agent)
    boot_id: str = ""
    barred: frozenset[str] = frozenset()
    """Devices that no worker may get: broken ones, and those that other users' processes use."""
    run_specs: dict[str, tuple[JobSpec, RunSpec]] = field(default_factory=dict)
    """job id -> the spec that the log had last, and what it runs."""
    timers: set[asyncio.TimerHandle] = field(default_factory=set)
    threads: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(_MOST_THREADS, "voda-look"))
    """Read what may hang, as what /proc says of a process that hangs itself: the API has threads of its own."""

    @property
    def node(self) -> str:
        return self.config.node.name

    def run_spec(self, job_id: str) -> RunSpec:
        """Return what a live job runs.

        Raises:
            ActionRefused: the log knows no such live job, or it cannot be run here.
        """
        spec = self.config.jobs(job_id)
        if spec is None:
            raise ActionRefused(f"job {job_id}: not known to the cluster")
        cached = self.run_specs.get(job_id)
        if cached is None or cached[0] is not spec:
            cached = self.run_specs[job_id] = (spec, self.config.run_spec(spec))
        return cached[1]

    def now(self) -> float:
        return self.config.clock.now()

    def after(self, pause_s: float, act: Callable[[], None]) -> asyncio.TimerHandle:
        """Do something after a pause, unless the cluster is closed by then."""

        def due() -> None:
            self.timers.discard(handle)
            act()

        handle = asyncio.get_running_loop().call_later(max(0.0, pause_s), due)
        self.timers.add(handle)
        return handle

    def in_thread(self, read: Callable[[], T], then: Callable[[T | None], object], *, within_s: float) -> None:
        """Read something in a thread and hand it on; None where that takes too long or fails."""
        reading = asyncio.get_running_loop().run_in_executor(self.threads, read)
        is_due = [True]

        def done() -> None:
            if is_due:
                is_due.clear()
                limit.cancel()
                self.timers.discard(limit)
                # What has not begun by now must not pile up behind what hangs.
                reading.cancel()
                is_read = not reading.cancelled() and reading.exception() is None
                then(reading.result() if is_read else None)

        limit = self.after(within_s, done)
        reading.add_done_callback(lambda _: done())

    def cancel_timers(self) -> None:
        for handle in self.timers:
            handle.cancel()
        self.timers.clear()


class Timer:
    """Calls a function once, at the earliest of the times asked for since its last call.

    A timer of the loop may come before its time, as those of uvloop do, which count whole milliseconds: the function
    finds out what is due, and sets the timer again where nothing is yet.
    """

    def __init__(self, after: Callable[[float, Callable[[], None]], None], act: Callable[[], None]) -> None:
        self._after = after
        self._act = act
        self._due = math.inf
        """Loop time for which it is set; infinity while it is not."""

    def set(self, pause_s: float) -> None:
        """Call the function after a pause; where it is called sooner anyway, nothing changes."""
        due = asyncio.get_running_loop().time() + pause_s
        if due < self._due:
            self._due = due
            self._after(pause_s, lambda: self._fire(due))

    def _fire(self, due: float) -> None:
        # One that was set for a later time than another one does nothing.
        if due == self._due:
            self._due = math.inf
            self._act()


class JobState:
    """A job's record and where it lies; all parts of the job change the one record."""

    def __init__(self, context: LocalContext, folder: JobFolder, record: LocalJobRecord) -> None:
        self.context = context
        self.folder = folder
        self.record = record
        self.is_open = True
        self.adopted: Mapping[str, int] = {}
        """replica -> its run, of those that an earlier voda started."""
        self.account: Account | None = None
        """That it runs with; None: as the user who runs voda."""
        self.is_account_known = context.config.account is None
        """While it is not, nothing of the job is started."""

    def use(self, account: Account | None) -> str:
        """Run the job with this account from now on, None = as the user who runs voda; return why it cannot, a sentence
        (empty where it can).
        """
        self.account, self.is_account_known = account, True
        expected, found = None if account is None else account.uid, self.folder.uid
        if expected == found:
            return ""
        names = ["the user who runs voda" if uid is None else f"uid {uid}" for uid in (found, expected)]
        return f"its folder {self.folder.path} belongs to {names[0]}, expected {names[1]}, as whom it has to run"

    def group(self, replica: str) -> str:
        """Return the name of a replica's control groups."""
        return group_name(self.context.config.folder, self.record.job_id, replica)

    def save(self, *, durably: bool = False) -> None:
        """Write the record, now or a little later; `durably` waits for the disk."""
        try:
            self.folder.save(self.record, durably=durably)
        except UnsafeFile as error:
            # It will not be better later. The next voda finds no record, and ends what is left of the job.
            _log.warning("job_id=%s its record cannot be written: %s", self.record.job_id, error)
        except OSError as error:
            _log.warning("job_id=%s its record cannot be written: %s", self.record.job_id, error)
            self.later(TRY_AGAIN_S, self.save)

    def later(self, pause_s: float, act: Callable[[], None]) -> None:
        self.context.after(pause_s, lambda: act() if self.is_open else None)

    def run_spec(self) -> RunSpec | None:
        """Return what the job runs; None where the log does not know the job any more, or it cannot be run here."""
        try:
            return self.context.run_spec(self.record.job_id)
        except ActionRefused:
            return None

    def replicas_to_run(self) -> Sequence[str]:
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
