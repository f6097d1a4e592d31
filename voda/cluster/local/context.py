"""What a local cluster is given, what its jobs share, and their timers."""

import asyncio
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from voda.clock import Clock
from voda.cluster.local.devices import Device, Slots
from voda.cluster.local.gpus import GpuMonitor
from voda.cluster.local.mpi import Transport
from voda.cluster.local.run_spec import RunSpec, run_spec_of
from voda.domain.errors import ActionRefused
from voda.domain.job import JobSpec
from voda.domain.node import Node
from voda.events.types import Observation

LOG_BYTES: Final = 256 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalClusterConfig:
    """What a local cluster is given."""

    node: Node
    """This machine, by its name and pool; `devices` says how many GPUs it has."""
    folder: Path
    """Holds all jobs' folders; several clusters may share it, each with its own pool and devices."""
    devices: Sequence[Device]
    """Handed out to workers: GPUs (gpus.find_gpus) or CPU slots (devices.cpu_slots)."""
    clock: Clock
    jobs: Callable[[str], JobSpec | None]
    """job id -> the spec of a job that is live in the log; None for any other. It must be up to date before the cluster
    opens: restarted jobs are read from it, and an unknown job is forgotten once no process of it is left."""
    base: Mapping[str, str]
    """Environment that every process starts from."""
    environment: Callable[[JobSpec], Mapping[str, str]] = lambda _spec: {}
    """VODA_... variables of a job's processes."""
    run_spec: Callable[[JobSpec], RunSpec] = run_spec_of
    health: GpuMonitor | None = None
    """Reads the GPUs' health; None without GPUs."""
    transport: Transport | None = None
    """How mpirun gets into a worker; None: found out when the cluster opens."""
    log_bytes: int = LOG_BYTES
    """Most bytes of one replica's output; of a longer one the last megabyte stays."""


@dataclass(slots=True, kw_only=True)
class LocalContext:
    """What the jobs of a local cluster share; its owner is LocalCluster."""

    config: LocalClusterConfig
    slots: Slots
    tell: Callable[[Observation], None]
    transport: Transport = "rank"
    boot_id: str = ""
    barred: frozenset[str] = frozenset()
    """Devices that no worker may get: broken ones, and those that other users' processes use."""
    run_specs: dict[str, tuple[JobSpec, RunSpec]] = field(default_factory=dict)
    """job id -> the spec that the log had last, and what it runs."""
    timers: set[asyncio.TimerHandle] = field(default_factory=set)

    @property
    def node(self) -> str:
        """Name of the only node."""
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
        """Return seconds since the Unix epoch."""
        return self.config.clock.now()

    def after(self, pause_s: float, act: Callable[[], None]) -> None:
        """Do something after a pause, unless the cluster is closed by then."""

        def due() -> None:
            self.timers.discard(handle)
            act()

        handle = asyncio.get_running_loop().call_later(max(0.0, pause_s), due)
        self.timers.add(handle)

    def cancel_timers(self) -> None:
        """Cancel all that `after` was asked for."""
        for handle in self.timers:
            handle.cancel()
        self.timers.clear()


class Timer:
    """Calls a function once, at the earliest of the times asked for since its last call.

    A timer of the loop may come before its time, as those of uvloop do, which count whole milliseconds: the function
    finds out what is due, and sets the timer again where nothing is yet.

    Args:
        after: calls a function after a pause.
        act: what is called.
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
