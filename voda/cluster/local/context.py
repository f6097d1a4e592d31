"""What a local cluster is given (`Setup`), and what its jobs share (`Site`)."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from voda.clock import Clock
from voda.cluster.local.devices import Device, Slots
from voda.cluster.local.gpus import Watch
from voda.cluster.local.mpi import Transport
from voda.cluster.local.run_spec import Blueprint, blueprint_of
from voda.domain.errors import ActionRefused
from voda.domain.job import JobSpec
from voda.domain.node import Node
from voda.events.types import Observation

LOG_BYTES: Final = 256 << 20


def no_variables(_spec: JobSpec) -> Mapping[str, str]:
    """Give a job's processes no variables of voda's."""
    return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """What a local cluster is given."""

    node: Node
    """This machine, by its name and pool; its GPUs are counted from `devices`."""
    folder: Path
    """Of all jobs' folders; several clusters may share it, each with its own pool and devices."""
    devices: Sequence[Device]
    """Handed out to workers: GPUs (gpus.found) or CPU slots (devices.cpu_slots)."""
    clock: Clock
    jobs: Callable[[str], JobSpec | None]
    """The spec of a job that is live in the log; None of any other. It must be up to date before the cluster opens:
    what is started again is read from it, and a job it does not know is forgotten once no process of it is left."""
    base: Mapping[str, str]
    """Environment that every process starts from."""
    environment: Callable[[JobSpec], Mapping[str, str]] = no_variables
    """VODA_... variables of a job's processes."""
    blueprint: Callable[[JobSpec], Blueprint] = blueprint_of
    health: Watch | None = None
    """Reads the GPUs' health; None without GPUs."""
    transport: Transport | None = None
    """How mpirun gets into a worker; None: found out when the cluster opens."""
    log_bytes: int = LOG_BYTES
    """Cap of one replica's output; of more, the last megabyte is kept."""


@dataclass(slots=True, kw_only=True)
class Site:
    """The ground on which jobs run; its owner is LocalCluster."""

    setup: Setup
    slots: Slots
    tell: Callable[[Observation], None]
    transport: Transport = "rank"
    boot_id: str = ""
    barred: frozenset[str] = frozenset()
    """Devices that are not to be given away: broken ones, and those that others use."""
    blueprints: dict[str, tuple[JobSpec, Blueprint]] = field(default_factory=dict)
    """job id -> the spec last seen and what it came to."""
    timers: set[asyncio.TimerHandle] = field(default_factory=set)

    @property
    def node(self) -> str:
        """Name of the only node."""
        return self.setup.node.name

    def blueprint(self, job_id: str) -> Blueprint:
        """Return what a live job comes to.

        Raises:
            ActionRefused: the log knows no such live job, or it cannot be run here.
        """
        spec = self.setup.jobs(job_id)
        if spec is None:
            raise ActionRefused(f"job {job_id}: not known to the cluster")
        kept = self.blueprints.get(job_id)
        if kept is None or kept[0] is not spec:
            kept = self.blueprints[job_id] = (spec, self.setup.blueprint(spec))
        return kept[1]

    def now(self) -> float:
        """Return seconds since the Unix epoch."""
        return self.setup.clock.now()

    def after(self, pause_s: float, act: Callable[[], None]) -> None:
        """Have something done later, unless the cluster is closed by then."""

        def due() -> None:
            self.timers.discard(handle)
            act()

        handle = asyncio.get_running_loop().call_later(max(0.0, pause_s), due)
        self.timers.add(handle)

    def cancel_timers(self) -> None:
        """Forget all that was to be done later."""
        for handle in self.timers:
            handle.cancel()
        self.timers.clear()
