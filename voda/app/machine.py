"""Divides the devices of this machine into pools, each a local cluster: its GPUs by model, else CPU slots.

Rule: one pool per GPU model, because a job's speed on one model says little about its speed on another.
"""

import os
import platform
from collections.abc import Callable, Mapping, Sequence

from voda.app.options import MachineOptions
from voda.clock import Clock
from voda.cluster.local import gpus
from voda.cluster.local.cluster import LocalCluster
from voda.cluster.local.context import Setup
from voda.cluster.local.devices import Device, cpu_slots
from voda.domain.errors import InvalidInput
from voda.domain.job import JobSpec
from voda.domain.node import Node

Specs = Callable[[str, str], JobSpec | None]
"""(pool, job id) -> the spec of a live job."""


class Machine:
    """The devices of this machine, divided into pools."""

    def __init__(self, options: MachineOptions, nvml: gpus.Nvml | None = None) -> None:
        self._options = options
        self._nvml = nvml or gpus.opened()
        found = gpus.found(self._nvml, visible=options.environment.get("CUDA_VISIBLE_DEVICES"))
        if found and options.slots is not None:
            raise InvalidInput(
                f"--slots offers CPU slots, but this machine has {len(found)} GPUs: leave it out, or hide the GPUs"
                " with CUDA_VISIBLE_DEVICES="
            )
        self.pools: Mapping[str, Sequence[Device]] = self._by_pool(found)

    def description(self) -> Sequence[str]:
        """Return one line per pool."""
        return [f"pool {pool}: {_device_count(devices)}" for pool, devices in self.pools.items()]

    def clusters(
        self, clock: Clock, specs: Specs, environment: Callable[[JobSpec], Mapping[str, str]]
    ) -> dict[str, LocalCluster]:
        """Return pool -> its cluster, not opened yet.

        Args:
            clock: dates what is recorded.
            specs: of the live jobs.
            environment: variables of a job's processes, laid over those of this process.
        """
        return {pool: self._cluster(pool, devices, clock, specs, environment) for pool, devices in self.pools.items()}

    def _cluster(
        self,
        pool: str,
        devices: Sequence[Device],
        clock: Clock,
        specs: Specs,
        environment: Callable[[JobSpec], Mapping[str, str]],
    ) -> LocalCluster:
        host = platform.node() or "localhost"
        # A node is in one pool, so a machine of several GPU models is several nodes.
        name = host if len(self.pools) == 1 else f"{host}-{pool}"
        has_gpus = devices[0].is_gpu
        model = devices[0].model if has_gpus else "cpu"
        labels = {"voda.dev/accelerator": model, "kubernetes.io/hostname": host}
        setup = Setup(
            node=Node(name=name, pool=pool, gpus=len(devices), labels=labels),
            folder=self._options.home.absolute() / "jobs",
            devices=devices,
            clock=clock,
            jobs=lambda job_id: specs(pool, job_id),
            base=self._options.environment,
            environment=environment,
            health=gpus.Watch(self._nvml, devices) if has_gpus else None,
        )
        return LocalCluster(setup)

    def _by_pool(self, found: Sequence[Device]) -> Mapping[str, Sequence[Device]]:
        if not found:
            return {self._options.pool: cpu_slots(self._options.slots or os.cpu_count() or 1)}
        by_model = gpus.pools(found)
        return {self._options.pool: found} if len(by_model) == 1 else by_model


def _device_count(devices: Sequence[Device]) -> str:
    count = len(devices)
    plural = "" if count == 1 else "s"
    if not devices[0].is_gpu:
        return f"{count} CPU slot{plural} (no GPU found; each counts as one GPU)"
    return f"{count} GPU{plural} ({devices[0].model})"
