"""NVIDIA's library as it is used, with a driver that answers, one that loses a GPU, and none; and what comes of it."""

import os
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest

from tests.local_jobs import FakeNvml, gpus
from tests.needs import needs
from tests.waiting import wait_until
from voda.cluster.local.devices import MPS_SERVER, GpuMonitor, GpuReading, find_gpus, gpu_pools, open_driver
from voda.process_table import command_name


class Answers:
    """What the library's calls answer; two GPUs, the second of which can be lost."""

    def __init__(self) -> None:
        self.lost = False
        self.ecc = {0: 0, 1: 0}
        self.xids: list[tuple[int, int]] = []

    def pci(self, handle: int) -> SimpleNamespace:
        return SimpleNamespace(busId=f"0000:{handle:02}:00.0")

    def processes(self, handle: int) -> list[object]:
        if self.lost and handle == 1:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST)
        return [object()] if handle == 0 else []

    def errors(self, handle: int, _kind: int, _since: int) -> int:
        return self.ecc[handle]

    def event(self, _events: object, _timeout_ms: int) -> SimpleNamespace:
        if not self.xids:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_TIMEOUT)
        device, xid = self.xids.pop(0)
        return SimpleNamespace(device=device, eventData=xid)


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Answers:
    answers = Answers()
    calls: dict[str, Any] = {
        "nvmlInit": lambda: None,
        "nvmlDeviceGetCount": lambda: 2,
        "nvmlDeviceGetHandleByIndex": lambda index: index,
        "nvmlDeviceGetUUID": lambda handle: f"GPU-{handle}",
        "nvmlDeviceGetName": lambda _handle: "NVIDIA H200",
        "nvmlDeviceGetPciInfo": answers.pci,
        "nvmlDeviceGetComputeRunningProcesses": answers.processes,
        "nvmlDeviceGetTotalEccErrors": answers.errors,
        "nvmlEventSetCreate": object,
        "nvmlDeviceRegisterEvents": lambda *_: None,
        "nvmlEventSetWait": answers.event,
    }
    for name, call in calls.items():
        assert hasattr(pynvml, name)
        monkeypatch.setattr(pynvml, name, call)
    return answers


def test_driver_when_all_is_well_shows_gpus(answers: Answers) -> None:
    gpus = open_driver()()
    assert [(gpu.index, gpu.uuid, gpu.model, gpu.problem, gpu.processes) for gpu in gpus] == [
        (0, "GPU-0", "NVIDIA H200", "", 1),
        (1, "GPU-1", "NVIDIA H200", "", 0),
    ]


def test_server_of_mps_is_no_user_of_a_gpu(answers: Answers, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    server = tmp_path / "nvidia-cuda-mps-server"
    shutil.copy(shutil.which("sleep") or "sleep", server)
    with subprocess.Popen([server, "100"]) as process:
        try:
            found = [SimpleNamespace(pid=process.pid), SimpleNamespace(pid=os.getpid())]
            monkeypatch.setattr(pynvml, "nvmlDeviceGetComputeRunningProcesses", lambda _handle: found)
            wait_until(lambda: [gpu.processes for gpu in open_driver()()] == [1, 1])
            assert process.poll() is None
        finally:
            process.kill()


@needs(os.geteuid() == 0, "only root starts processes of other users")
def test_process_of_another_user_that_calls_itself_the_server_of_mps_is_a_user_of_a_gpu(
    answers: Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    forge = "open('/proc/self/comm', 'w').write('nvidia-cuda-mps-server'); print(flush=True); input()"
    command = ["/usr/bin/python3", "-I", "-S", "-c", forge]
    with subprocess.Popen(command, user=65_534, cwd="/", stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"\n"
            assert command_name(process.pid) == MPS_SERVER
            found = [SimpleNamespace(pid=process.pid)]
            monkeypatch.setattr(pynvml, "nvmlDeviceGetComputeRunningProcesses", lambda _handle: found)
            assert [gpu.processes for gpu in open_driver()()] == [1, 1]
        finally:
            process.kill()


def test_driver_when_it_knows_the_memory_of_a_gpu_says_so(answers: Answers, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = {0: 80 << 30, 1: 40 << 30}
    monkeypatch.setattr(pynvml, "nvmlDeviceGetMemoryInfo", lambda handle: SimpleNamespace(total=sizes[handle]))
    assert [gpu.memory_mib for gpu in open_driver()()] == [81_920, 40_960]
    assert [device.memory_mib for device in find_gpus(open_driver())] == [81_920, 40_960]


def test_driver_when_a_gpu_is_lost_or_has_bad_memory_says_so(answers: Answers) -> None:
    driver = open_driver()
    answers.lost = True
    answers.ecc[0] = 2
    assert [gpu.problem for gpu in driver()] == [
        "2 uncorrectable memory errors since its last reset",
        "it fell off the bus",
    ]


def test_driver_when_a_gpu_reports_an_xid_tells_it_unless_it_was_the_programs_fault(answers: Answers) -> None:
    driver = open_driver()
    answers.xids = [(0, 31), (1, 79)]
    assert [gpu.problem for gpu in driver()] == ["", "it reported Xid 79"]


def test_driver_when_there_is_none_shows_no_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)

    monkeypatch.setattr(pynvml, "nvmlInit", refuse)
    assert open_driver()() == ()


def test_gpus_when_found_are_named_as_cuda_counts_them() -> None:
    devices = find_gpus(FakeNvml(*gpus(2)).gpus)
    assert [(device.name, device.uuid, device.model) for device in devices] == [
        ("0", "GPU-00", "NVIDIA H200"),
        ("1", "GPU-11", "NVIDIA H200"),
    ]


def test_gpus_when_voda_itself_may_see_only_some_are_only_these() -> None:
    nvml = FakeNvml(*gpus(4))
    assert [device.name for device in find_gpus(nvml.gpus, visible="1,GPU-33")] == ["1", "3"]
    assert find_gpus(nvml.gpus, visible="") == ()


def test_gpus_when_of_two_models_are_two_pools() -> None:
    found_gpus = [*gpus(2), GpuReading(index=2, uuid="GPU-22", model="Tesla V100-SXM2-16GB")]
    by_pool = gpu_pools(find_gpus(FakeNvml(*found_gpus).gpus))
    assert {pool: len(devices) for pool, devices in by_pool.items()} == {"nvidia-h200": 2, "tesla-v100-sxm2-16gb": 1}


def test_gpu_when_it_reported_an_error_stays_broken() -> None:
    nvml = FakeNvml(*gpus(2))
    watch = GpuMonitor(nvml.gpus, find_gpus(nvml.gpus))
    nvml.change(1, problem="it reported Xid 79")
    assert watch.look(frozenset()).broken == {"1": "it reported Xid 79"}
    nvml.change(1, problem="")
    assert watch.look(frozenset()).broken == {"1": "it reported Xid 79"}


def test_gpu_is_broken_for_as_long_as_it_is_not_shown() -> None:
    nvml = FakeNvml(*gpus(2))
    watch = GpuMonitor(nvml.gpus, find_gpus(nvml.gpus))
    first = nvml.shown.pop(0)
    assert watch.look(frozenset()).broken == {"0": "it is gone from the bus"}
    nvml.shown.insert(0, first)
    assert watch.look(frozenset()).broken == {}


def test_gpu_when_others_use_it_is_foreign_unless_a_worker_holds_it() -> None:
    nvml = FakeNvml(*gpus(2))
    nvml.change(0, processes=1)
    nvml.change(1, processes=1)
    watch = GpuMonitor(nvml.gpus, find_gpus(nvml.gpus))
    assert watch.look(frozenset({"1"})).foreign == {"0"}


def test_gpu_when_it_is_busy_for_a_moment_after_its_worker_is_not_foreign() -> None:
    nvml = FakeNvml(*gpus(1))
    watch = GpuMonitor(nvml.gpus, find_gpus(nvml.gpus))
    watch.look(frozenset({"0"}))
    nvml.change(0, processes=1)
    assert watch.look(frozenset()).foreign == frozenset()
    assert watch.look(frozenset()).foreign == {"0"}
    nvml.change(0, processes=0)
    assert watch.look(frozenset()).foreign == frozenset()
