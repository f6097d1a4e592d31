"""The devices of this machine, GPUs as NVIDIA's driver shows them (NVML) or CPU slots, and which worker holds which.

Rules: a device has one holder at a time, or several that have parts of it, and a worker keeps its devices until it is
gone. The driver is only read; a GPU counts as healthy where the driver refuses an answer, so that an odd driver costs
no GPU; a broken GPU stays broken until voda restarts, and one that is not listed counts as broken until it is listed
again. A GPU is in use by others if two looks in a row show a compute process on it while no worker holds it: a worker
that has just ended may show for a moment.
"""

import logging
import os
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Final

from msgspec import Struct

from voda.domain.errors import ActionRefused
from voda.domain.gpus import ContainerGpus, GpuDevice, GpuRequest, Gpus
from voda.domain.shares import PodShares, SharingNode
from voda.events.text.cells import request_text
from voda.process_table import command_name, user_of
from voda.sharing import OpenGpus

_log = logging.getLogger(__name__)
CONTAINER: Final = "share"
"""Of a job with a part of a GPU, in the account of GPUs."""
MPS_SERVER: Final = "nvidia-cuda-mps-server"[:15]
# Errors of the program rather than of the GPU, as NVIDIA's guide to Xid errors has them.
_PROGRAM_XIDS: Final = frozenset({13, 31, 43, 45, 68, 109})


class Device(Struct, frozen=True, kw_only=True):
    name: str
    """Unique on its node; of a GPU, what CUDA_VISIBLE_DEVICES takes."""
    model: str = ""
    """Of a GPU, as its maker calls it."""
    is_gpu: bool = True
    uuid: str = ""
    minor: int | None = None
    """Of a GPU, the number of its file /dev/nvidiaN; None: not known."""
    memory_mib: int = 0
    """Of a GPU; 0: not known."""


def cpu_slots(count: int) -> tuple[Device, ...]:
    """Return so many slots without GPUs."""
    return tuple(Device(name=f"cpu{index}", is_gpu=False) for index in range(count))


class Slots:
    """Which worker holds which device, whole or a part of it."""

    def __init__(self, devices: Iterable[Device]) -> None:
        self.devices: Mapping[str, Device] = {device.name: device for device in devices}
        self._holders: dict[str, tuple[str, int]] = {}
        self._shares = SharingNode(devices=share_devices(self.devices.values()))
        """By job id; what a job has of a device that is not known any more is on none."""

    def hold(self, job_id: str, index: int, names: Sequence[str]) -> None:
        """Note that a worker holds these devices already, whether or not they are (still) known."""
        self._holders.update(dict.fromkeys(names, (job_id, index)))

    def hold_share(self, job_id: str, pod: str, request: GpuRequest, name: str) -> Mapping[str, ContainerGpus]:
        """Note that a job has this part of a device, (still) known or not, and return it as a fact has it."""
        names = [*self.devices]
        # One that is not known any more is none of the node's GPUs.
        gpu = names.index(name) if name in self.devices else len(names)
        containers = {CONTAINER: ContainerGpus(gpus=(gpu,), request=request)}
        self._shares.pods[job_id] = PodShares(pod=pod, containers=containers, assigned_at=0.0)
        return containers

    def choose_for_share(
        self,
        job_id: str,
        request: GpuRequest,
        *,
        barred: Iterable[str],
        node: str,
        beside: Sequence[str] | None = None,
    ) -> str:
        """Return the device of which a job gets a part, of those that no worker holds whole.

        Args:
            job_id: of the worker.
            request: the part.
            barred: devices that are not to be given away.
            node: its name, for the error.
            beside: jobs of which it is to share the device; of others none, so that it gets a part of an unused one
                where none of them has any. None: any device will do.

        Raises:
            ActionRefused: none has so much left.
        """
        closed = {*barred, *self._holders}
        if beside is not None:
            mates, shared = self._shares.gpus_of(beside), self.shared()
            gpus_shut = (gpu not in mates if mates else name in shared for gpu, name in enumerate(self.devices))
            closed |= {name for name, is_shut in zip(self.devices, gpus_shut, strict=True) if is_shut}
        names = [*self.devices]
        free = OpenGpus((gpu, left) for gpu, left in enumerate(self._shares.free()) if names[gpu] not in closed)
        chosen = next(free.fitting(request), None)
        if chosen is None:
            raise ActionRefused(f"job {job_id}: needs {request_text(request)} of one GPU of node {node}, none has it")
        return names[chosen]

    def release_share(self, job_id: str) -> bool:
        """Note that a job has no part of a device any more, and return whether it had one."""
        return self._shares.pods.pop(job_id, None) is not None

    def shares(self) -> SharingNode:
        """Return what jobs have parts of, as it is now."""
        return self._shares.copy()

    def shared(self) -> frozenset[str]:
        """Return the devices of which jobs have parts."""
        gpus = {gpu for pod in self._shares.pods.values() for share in pod.containers.values() for gpu in share.gpus}
        return frozenset(name for gpu, name in enumerate(self.devices) if gpu in gpus)

    def take(
        self, job_id: str, indices: Iterable[int], per_worker: Gpus, *, barred: Iterable[str], node: str
    ) -> dict[int, tuple[str, ...]]:
        """Give every one of some workers its devices, or none of them any; return worker index -> names of its devices.

        Args:
            job_id: of the workers.
            indices: of the workers.
            per_worker: GPUs, or slots, each of them needs.
            barred: devices that are not to be given away.
            node: its name, for the error.

        Raises:
            ActionRefused: there are too few.
        """
        wanted = sorted(indices)
        closed = {*barred, *self.held()}
        free = [name for name in self.devices if name not in closed]
        if len(free) < len(wanted) * per_worker:
            raise ActionRefused(
                f"job {job_id}: needs {len(wanted) * per_worker} more GPUs on node {node}, {len(free)} free"
            )
        taken = {index: tuple(free[turn * per_worker : (turn + 1) * per_worker]) for turn, index in enumerate(wanted)}
        for index, names in taken.items():
            self.hold(job_id, index, names)
        return taken

    def release(self, job_id: str, index: int, names: Iterable[str]) -> None:
        """Note that a worker holds these devices no more; one that another worker holds is not free."""
        for name in names:
            if self._holders.get(name) == (job_id, index):
                del self._holders[name]

    def held(self) -> frozenset[str]:
        """Return the devices that workers hold, whole or a part of them."""
        return frozenset(self._holders) | self.shared()

    def jobs_by_gpu(self) -> Mapping[int, str]:
        """Return GPU -> id of the job of which a worker has all of it."""
        return {gpu: self._holders[name][0] for gpu, name in enumerate(self.devices) if name in self._holders}

    def minors(self, names: Iterable[str]) -> frozenset[int] | None:
        """Return the minor numbers of the GPUs among these devices; None where one of them is not known."""
        gpus = [self.devices.get(name) for name in names]
        found = [device.minor for device in gpus if device is not None and device.is_gpu]
        known = frozenset(minor for minor in found if minor is not None)
        return None if None in gpus or None in found else known

    @property
    def has_gpus(self) -> bool:
        return any(device.is_gpu for device in self.devices.values())

    def visible(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return what CUDA_VISIBLE_DEVICES shall name for these devices; empty where they are CPU slots."""
        return tuple(name for name in names if name not in self.devices or self.devices[name].is_gpu)


def share_devices(devices: Iterable[Device]) -> tuple[GpuDevice, ...]:
    """Return devices as GPUs to share; CPU slots are none."""
    return tuple(GpuDevice(memory_mib=device.memory_mib) for device in devices if device.is_gpu)


class GpuReading(Struct, frozen=True, kw_only=True):
    """A GPU as it is now."""

    index: int
    """In the order of the PCI bus."""
    uuid: str
    model: str = ""
    problem: str = ""
    """Why it must not be used; empty: it is healthy."""
    processes: int = 0
    """Compute processes on it."""
    minor: int | None = None
    memory_mib: int = 0


Driver = Callable[[], Sequence[GpuReading]]
"""Returns all GPUs, also those that no longer answer."""


class GpuHealth(Struct, frozen=True, kw_only=True):
    """How the GPUs are, by their names."""

    broken: Mapping[str, str] = {}
    """name -> why."""
    foreign: frozenset[str] = frozenset()
    """Those that others use."""


def find_gpus(driver: Driver, *, visible: str | None = None) -> tuple[Device, ...]:
    """Return the GPUs that voda may hand out; `visible` is CUDA_VISIBLE_DEVICES of voda itself, None where unset."""
    gpus = [gpu for gpu in driver() if not gpu.problem or gpu.uuid]
    if visible is not None:
        named = [word.strip() for word in visible.split(",")]
        gpus = [gpu for gpu in gpus if _is_named(gpu, named)]
    return tuple(
        Device(name=str(gpu.index), model=gpu.model, uuid=gpu.uuid, minor=gpu.minor, memory_mib=gpu.memory_mib)
        for gpu in gpus
    )


def gpu_pools(devices: Sequence[Device]) -> Mapping[str, Sequence[Device]]:
    """Return model -> its GPUs, the model written as a pool's name: lower case, with hyphens."""
    by_model = defaultdict[str, list[Device]](list)
    for device in devices:
        by_model[re.sub(r"[^a-z0-9]+", "-", device.model.lower()).strip("-") or "gpu"].append(device)
    return by_model


class GpuMonitor:
    """Tells broken GPUs, and those that others use, from one look at the driver to the next."""

    def __init__(self, driver: Driver, devices: Sequence[Device]) -> None:
        self._driver = driver
        self._names = {device.uuid or device.name: device.name for device in devices}
        self._broken: dict[str, str] = {}
        self._busy: frozenset[str] | None = None
        """GPUs with processes and without a worker, at the last look."""

    def look(self, held: AbstractSet[str]) -> GpuHealth:
        """Return how the GPUs are, of which workers hold some; as slow as the driver is: call it in a thread."""
        gpus = {self._names[gpu.uuid]: gpu for gpu in self._driver() if gpu.uuid in self._names}
        for name, gpu in gpus.items():
            if gpu.problem:
                self._broken.setdefault(name, gpu.problem)
        # A driver that starts anew may show none for a moment.
        absent = {name: "it is gone from the bus" for name in self._names.values() if name not in gpus}
        busy = frozenset(name for name, gpu in gpus.items() if gpu.processes and name not in held)
        before = busy if self._busy is None else self._busy
        self._busy = busy
        return GpuHealth(broken={**absent, **self._broken}, foreign=busy & before)


def open_driver() -> Driver:
    """Return the driver of this machine; one without GPUs where there is none."""
    try:
        return NvmlDriver().gpus
    except Exception as error:  # the library raises its own family, and OSError where it finds no driver
        _log.info("no NVIDIA driver: %s", error)
        return tuple


class NvmlDriver:
    """NVIDIA's driver, by nvidia-ml-py."""

    def __init__(self) -> None:
        import pynvml

        pynvml.nvmlInit()
        self._nvml = pynvml
        self._handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
        self._uuids = [pynvml.nvmlDeviceGetUUID(handle) for handle in self._handles]
        self._models = [pynvml.nvmlDeviceGetName(handle) for handle in self._handles]
        self._minors = [self._minor(handle) for handle in self._handles]
        self._memory_mib = [self._memory(handle) for handle in self._handles]
        self._by_bus = {pynvml.nvmlDeviceGetPciInfo(handle).busId: at for at, handle in enumerate(self._handles)}
        self._events = self._registered()

    def gpus(self) -> Sequence[GpuReading]:
        xids = self._xids()
        return tuple(self._gpu(index, xids.get(index)) for index in range(len(self._handles)))

    def _gpu(self, index: int, xid: int | None) -> GpuReading:
        handle, nvml = self._handles[index], self._nvml
        problem, processes = f"it reported Xid {xid}" if xid is not None else "", 0
        try:
            found = nvml.nvmlDeviceGetComputeRunningProcesses(handle)
            processes = sum(1 for each in found if not _is_mps_server(getattr(each, "pid", 0)))
        except nvml.NVMLError as error:
            problem = problem or self._loss(error)
        try:
            errors = nvml.nvmlDeviceGetTotalEccErrors(
                handle, nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC
            )
            if errors:
                problem = problem or f"{errors} uncorrectable memory errors since its last reset"
        except nvml.NVMLError as error:
            problem = problem or self._loss(error)
        return GpuReading(
            index=index,
            uuid=self._uuids[index],
            model=self._models[index],
            problem=problem,
            processes=processes,
            minor=self._minors[index],
            memory_mib=self._memory_mib[index],
        )

    def _minor(self, handle: object) -> int | None:
        try:
            return int(self._nvml.nvmlDeviceGetMinorNumber(handle))
        except self._nvml.NVMLError:
            return None

    def _memory(self, handle: object) -> int:
        try:
            return int(self._nvml.nvmlDeviceGetMemoryInfo(handle).total) >> 20
        except (self._nvml.NVMLError, AttributeError):
            return 0

    def _loss(self, error: Exception) -> str:
        """Return what an error says of the GPU itself; empty where the driver merely refuses an answer."""
        nvml = self._nvml
        lost = {nvml.NVML_ERROR_GPU_IS_LOST: "it fell off the bus", nvml.NVML_ERROR_RESET_REQUIRED: "it must be reset"}
        return lost.get(getattr(error, "value", None), "")

    def _registered(self) -> object | None:
        nvml = self._nvml
        try:
            events: object = nvml.nvmlEventSetCreate()
            for handle in self._handles:
                nvml.nvmlDeviceRegisterEvents(handle, nvml.nvmlEventTypeXidCriticalError, events)
        except nvml.NVMLError as error:
            _log.info("the driver reports no Xid errors: %s", error)
            return None
        return events

    def _xids(self) -> Mapping[int, int]:
        """Return index -> the last Xid that a GPU reported since the last look, unless a program caused it."""
        nvml, xids = self._nvml, {}
        while self._events:
            try:
                event = nvml.nvmlEventSetWait(self._events, 0)
                xid, bus = int(event.eventData), nvml.nvmlDeviceGetPciInfo(event.device).busId
            except nvml.NVMLError:
                break
            if xid not in _PROGRAM_XIDS and bus in self._by_bus:
                xids[self._by_bus[bus]] = xid
        return xids


def _is_named(gpu: GpuReading, named: Sequence[str]) -> bool:
    return any(word == str(gpu.index) or (word.startswith("GPU-") and gpu.uuid.startswith(word)) for word in named)


def _is_mps_server(pid: int) -> bool:
    """Return whether a process is the server of MPS, which outlives its last client.

    That of another user is none: every process may call itself so.
    """
    return command_name(pid) == MPS_SERVER and user_of(pid) in (0, os.geteuid())
