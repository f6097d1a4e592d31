"""A local cluster for tests: jobs made by hand, real processes, and waiting with a deadline."""

import os
import re
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from tests.waiting import DEADLINE_S, until, until_it_is
from voda.clock import SystemClock
from voda.cluster.local.cluster import LocalCluster
from voda.cluster.local.context import LocalClusterConfig
from voda.cluster.local.devices import Device, GpuReading, cpu_slots
from voda.cluster.local.folder import JobFolder
from voda.cluster.local.run_spec import RunSpec
from voda.domain.errors import ActionRefused
from voda.domain.gpus import Gpus
from voda.domain.job import JobSpec
from voda.domain.node import Node
from voda.domain.plan import Action, HaltJob, ResizeJob, StartJob, StopJob
from voda.events.types import Observation, WorkerExited
from voda.manifests.programs import FailurePolicy, ReplicaProgram

FOREVER = "while :; do sleep 0.05; done"


def an_mpi_job(job_id: str, script: str, *, policy: Mapping[str, Any] | None = None, **fields: Any) -> RunSpec:
    """Return an MPIJob whose launcher runs a shell script; two workers at most, unless the spec says otherwise."""
    return _a_job(job_id, "mpi", {"launcher": script}, policy, fields)


def a_torch_job(job_id: str, script: str, *, policy: Mapping[str, Any] | None = None, **fields: Any) -> RunSpec:
    """Return a PyTorchJob whose workers run a shell script."""
    return _a_job(job_id, "torch", {"worker": script}, policy, fields)


def _a_job(
    job_id: str, kind: Any, scripts: Mapping[str, str], policy: Mapping[str, Any] | None, fields: dict[str, Any]
) -> RunSpec:
    own = {name: fields.pop(name) for name in list(fields) if name in RunSpec.__struct_fields__}
    grace_s = fields.pop("grace_s", 5.0)
    argv = fields.pop("argv", None)
    programs = {
        role: ReplicaProgram(role=role, argv=argv or ("/bin/sh", "-c", script), grace_s=grace_s)
        for role, script in scripts.items()
    }
    return RunSpec(
        spec=JobSpec(job_id=job_id, name=job_id, **{"max_replicas": 4, **fields}),
        kind=kind,
        programs=programs,
        policy=FailurePolicy(**{"backoff_limit": 6, "restart_policy": {}, **(policy or {})}),
        **{"is_mpi_v2": kind == "mpi", **own},
    )


@dataclass
class Ground:
    """A folder of jobs, the jobs the log would know, and the cluster that is open on them."""

    folder: Path
    run_specs: dict[str, RunSpec] = field(default_factory=dict)
    devices: Sequence[Device] = field(default_factory=lambda: cpu_slots(4))
    settings: dict[str, Any] = field(default_factory=dict)
    told: list[Observation] = field(default_factory=list)
    open_cluster: LocalCluster | None = None
    pool: str = "default"
    base: Mapping[str, str] | None = None
    """Environment that processes start from; None: that of this process."""

    @property
    def cluster(self) -> LocalCluster:
        """The cluster that is open."""
        assert self.open_cluster is not None
        return self.open_cluster

    async def open(self) -> LocalCluster:
        """Open a cluster, as a voda that leads in an epoch does; None: as `voda up` does."""
        self.open_cluster = LocalCluster(
            LocalClusterConfig(
                node=Node(name="n1", pool=self.pool, gpus=Gpus(0)),
                folder=self.folder,
                devices=self.devices,
                clock=SystemClock(),
                jobs=self._spec,
                base=base_environment() if self.base is None else self.base,
                run_spec=self._run_spec,
                **self.settings,
            )
        )
        await self.open_cluster.open()
        return self.open_cluster

    async def end(self) -> None:
        """Stop every job, wait until nothing is left, and close."""
        for job_id in self.run_specs:
            await self.cluster.apply(StopJob(job_id=job_id, reason="canceled"))

        async def deserted() -> bool:
            return not (await self.cluster.observe()).workers

        with suppress(TimeoutError):
            await until_it_is(deserted)
        await self.cluster.close()

    def admit(self, run_spec: RunSpec) -> str:
        """Make a job known, and return its id."""
        self.run_specs[run_spec.spec.job_id] = run_spec
        return run_spec.spec.job_id

    async def start(self, run_spec: RunSpec, workers: int = 1, *, beside: tuple[str, ...] | None = None) -> str:
        """Make a job known and start it."""
        job_id = self.admit(run_spec)
        await self.apply(StartJob(job_id=job_id, nodes=("n1",) * workers, beside=beside))
        return job_id

    async def resize(self, job_id: str, workers: int, *, planned: int = 0) -> None:
        """Grow or shrink a job, for good or on the way to a plan of more workers."""
        await self.apply(ResizeJob(job_id=job_id, nodes=("n1",) * workers, planned=planned))

    async def halt(self, job_id: str) -> None:
        """Preempt a job."""
        await self.apply(HaltJob(job_id=job_id))

    async def stop(self, job_id: str) -> None:
        """End a job."""
        await self.apply(StopJob(job_id=job_id, reason="canceled"))

    async def apply(self, action: Action) -> None:
        """Apply an action."""
        await self.cluster.apply(action)

    async def workers(self, job_id: str = "a") -> tuple[int, ...]:
        """Return the indices of the workers observed."""
        return tuple((await self.cluster.observe()).workers.get(job_id, {}))

    async def until_workers(self, *indices: int, job_id: str = "a", within_s: float = DEADLINE_S) -> None:
        """Wait until exactly these workers are observed."""

        async def there() -> bool:
            return await self.workers(job_id) == indices

        await until_it_is(there, within_s=within_s)

    async def try_again(self, workers: int = 1, *, job_id: str = "a") -> None:
        """Start a job anew whose program failed, once all its workers are gone, as the next plan does."""
        await self.until_workers(job_id=job_id)
        await self.resize(job_id, workers)

    async def until_told(self, *expected: Observation) -> None:
        """Wait until all of these were told; when an exit lets its job be tried again is not compared."""
        try:
            await until(lambda: all(notice in map(_without_retry, self.notices()) for notice in expected))
        except AssertionError:
            raise AssertionError(f"expected {expected}, told were {self.told}") from None

    def notices(self) -> list[Observation]:
        """Return all that was told so far."""
        self.told += self.cluster.take_notices()
        return self.told

    def log(self, job_id: str = "a", replica: str = "launcher") -> str:
        """Return what a replica printed so far, without the lines between its runs."""
        return re.sub(r"\[voda: started again at [^]]*\]\n", "", self.output(job_id, replica))

    def output(self, job_id: str = "a", replica: str = "launcher") -> str:
        """Return all that its log holds."""
        path = JobFolder(self.folder, job_id).mpi.parent / "logs" / f"{replica}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    async def until_logged(self, text: str, *, job_id: str = "a", replica: str = "launcher") -> None:
        """Wait until a replica printed something."""
        try:
            await until(lambda: text in self.log(job_id, replica))
        except AssertionError:
            raise AssertionError(f"expected {text!r}, printed was {self.log(job_id, replica)!r}") from None

    def _spec(self, job_id: str) -> JobSpec | None:
        found = self.run_specs.get(job_id)
        return found.spec if found else None

    def _run_spec(self, spec: JobSpec) -> RunSpec:
        if spec.job_id not in self.run_specs:
            raise ActionRefused(f"job {spec.job_id}: not known to the cluster")
        return self.run_specs[spec.job_id]


def _without_retry(notice: Observation) -> Observation:
    return replace(notice, retry_at=None) if isinstance(notice, WorkerExited) else notice


def base_environment() -> dict[str, str]:
    """Return the environment of this process, with the tools of its virtual environment found first."""
    env = dict(os.environ)  # noqa: TID251 - what config.environment() gives to voda
    env["PATH"] = f"{Path(sys.executable).parent}:{env.get('PATH', '')}"
    return env


@asynccontextmanager
async def a_ground(folder: Path, **fields: Any) -> AsyncIterator[Ground]:
    """Yield ground with an open cluster; whatever runs on it in the end is stopped."""
    ground = Ground(folder=folder / "jobs", **fields)
    await ground.open()
    try:
        yield ground
    finally:
        await ground.end()


class FakeNvml:
    """A driver that shows what it is told to."""

    def __init__(self, *gpus: GpuReading) -> None:
        self.shown = list(gpus)

    def gpus(self) -> Sequence[GpuReading]:
        """Return the GPUs as they are now."""
        return self.shown

    def change(self, index: int, **fields: Any) -> None:
        """Let a GPU show something else."""
        self.shown[index] = replace(self.shown[index], **fields)


def gpus(count: int, model: str = "NVIDIA H200", *, memory_mib: int = 0) -> list[GpuReading]:
    """Return healthy GPUs."""
    return [
        GpuReading(index=index, uuid=f"GPU-{index}{index}", model=model, memory_mib=memory_mib)
        for index in range(count)
    ]
