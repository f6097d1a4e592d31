"""Finds what this machine offers, GPUs by model or else CPU slots, and makes one local cluster per pool.

Rule: one pool per GPU model, because a job's speed on one says little about its speed on another.
"""

import os
import platform
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from voda.app.options import MachineOptions
from voda.clock import Clock
from voda.cluster.local import gpus
from voda.cluster.local.cluster import LocalCluster
from voda.cluster.local.context import LocalClusterConfig
from voda.cluster.local.devices import Device, cpu_slots
from voda.domain.errors import InvalidInput
from voda.domain.gpus import Gpus
from voda.domain.job import JobSpec
from voda.domain.node import Node

Specs = Callable[[str, str], JobSpec | None]
"""(pool, job id) -> the spec of a live job."""


class Machine:
    """The devices of this machine, divided into pools."""

    def __init__(self, options: MachineOptions) -> None:
        self._options = options
        self._nvml = gpus.open_driver()
        found = gpus.find_gpus(self._nvml, visible=options.environment.get("CUDA_VISIBLE_DEVICES"))
        if found and options.slots is not None:
            raise InvalidInput(
                f"--slots offers CPU slots, but this machine has {len(found)} GPUs: leave it out, or hide the GPUs"
                " with CUDA_VISIBLE_DEVICES="
            )
        self.pools: Mapping[str, Sequence[Device]] = self._divided(found)

    def description(self) -> Sequence[str]:
        """Return one line per pool."""
        return [f"pool {pool}: {_counted(devices)}" for pool, devices in self.pools.items()]

    def clusters(
        self, clock: Clock, specs: Specs, environment: Callable[[JobSpec], Mapping[str, str]]
    ) -> dict[str, LocalCluster]:
        """Return pool -> its cluster, not opened yet.

        Args:
            clock: of the instants in the jobs' records.
            specs: of the live jobs.
            environment: variables of a job's processes, laid over our own.
        """
        return {
            pool: LocalCluster(
                LocalClusterConfig(
                    node=self._node(pool, devices),
                    folder=self._options.home.absolute() / "jobs",
                    devices=devices,
                    clock=clock,
                    jobs=partial(specs, pool),
                    base=self._options.environment,
                    environment=environment,
                    health=gpus.GpuMonitor(self._nvml, devices) if devices[0].is_gpu else None,
                )
            )
            for pool, devices in self.pools.items()
        }

    def _node(self, pool: str, devices: Sequence[Device]) -> Node:
        host = platform.node() or "localhost"
        model = devices[0].model if devices[0].is_gpu else "cpu"
        labels = {"voda.dev/accelerator": model, "kubernetes.io/hostname": host}
        # A node is in one pool, so a machine of several GPU models is several nodes.
        name = host if len(self.pools) == 1 else f"{host}-{pool}"
        return Node(name=name, pool=pool, gpus=Gpus(len(devices)), labels=labels)

    def _divided(self, found: Sequence[Device]) -> Mapping[str, Sequence[Device]]:
        if not found:
            return {self._options.pool: cpu_slots(self._options.slots or os.cpu_count() or 1)}
        by_model = gpus.gpu_pools(found)
        return {self._options.pool: found} if len(by_model) == 1 else by_model


def _counted(devices: Sequence[Device]) -> str:
    count = len(devices)
    plural = "" if count == 1 else "s"
    if not devices[0].is_gpu:
        return f"{count} CPU slot{plural} (no GPU found; each counts as one GPU)"
    return f"{count} GPU{plural} ({devices[0].model})"
