"""What is made of the driver's figures."""

from tests.local_jobs import FakeNvml, cards
from voda.cluster.local.devices import Card, GpuMonitor, find_gpus, gpu_pools


def test_gpus_when_found_are_named_as_cuda_counts_them() -> None:
    devices = find_gpus(FakeNvml(*cards(2)).cards)
    assert [(device.name, device.uuid, device.model) for device in devices] == [
        ("0", "GPU-00", "NVIDIA H200"),
        ("1", "GPU-11", "NVIDIA H200"),
    ]


def test_gpus_when_voda_itself_may_see_only_some_are_only_these() -> None:
    nvml = FakeNvml(*cards(4))
    assert [device.name for device in find_gpus(nvml.cards, visible="1,GPU-33")] == ["1", "3"]
    assert find_gpus(nvml.cards, visible="") == ()


def test_gpus_when_of_two_models_are_two_pools() -> None:
    found_cards = [*cards(2), Card(index=2, uuid="GPU-22", model="Tesla V100-SXM2-16GB")]
    by_pool = gpu_pools(find_gpus(FakeNvml(*found_cards).cards))
    assert {pool: len(devices) for pool, devices in by_pool.items()} == {"nvidia-h200": 2, "tesla-v100-sxm2-16gb": 1}


def test_gpu_when_it_reported_an_error_stays_broken() -> None:
    nvml = FakeNvml(*cards(2))
    watch = GpuMonitor(nvml.cards, find_gpus(nvml.cards))
    nvml.change(1, problem="it reported Xid 79")
    assert watch.look(frozenset()).broken == {"1": "it reported Xid 79"}
    nvml.change(1, problem="")
    assert watch.look(frozenset()).broken == {"1": "it reported Xid 79"}


def test_gpu_when_it_is_not_shown_any_more_is_broken() -> None:
    nvml = FakeNvml(*cards(2))
    watch = GpuMonitor(nvml.cards, find_gpus(nvml.cards))
    nvml.shown.pop(0)
    assert watch.look(frozenset()).broken == {"0": "it is gone from the bus"}


def test_gpu_when_others_use_it_is_foreign_unless_a_worker_holds_it() -> None:
    nvml = FakeNvml(*cards(2))
    nvml.change(0, processes=1)
    nvml.change(1, processes=1)
    watch = GpuMonitor(nvml.cards, find_gpus(nvml.cards))
    assert watch.look(frozenset({"1"})).foreign == {"0"}


def test_gpu_when_it_is_busy_for_a_moment_after_its_worker_is_not_foreign() -> None:
    nvml = FakeNvml(*cards(1))
    watch = GpuMonitor(nvml.cards, find_gpus(nvml.cards))
    watch.look(frozenset({"0"}))
    nvml.change(0, processes=1)
    assert watch.look(frozenset()).foreign == frozenset()
    assert watch.look(frozenset()).foreign == {"0"}
    nvml.change(0, processes=0)
    assert watch.look(frozenset()).foreign == frozenset()
