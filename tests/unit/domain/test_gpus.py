"""GPUs add up, and divide into replicas; on the wire they are numbers."""

import msgspec
import pytest

from tests.builders import a_job, a_node, a_state
from voda.domain.gpus import NO_GPUS, GpuRequest, Gpus, request_of_core, total
from voda.domain.job import JobSpec
from voda.domain.node import Node


def test_gpus_when_multiplied_by_replicas_divide_into_them_again() -> None:
    charge = 3 * Gpus(2)
    assert charge == Gpus(6)
    assert charge // Gpus(2) == 3
    assert total([charge, Gpus(1), NO_GPUS]) == Gpus(7)
    assert total([]) == NO_GPUS


@pytest.mark.parametrize("record", [Node(name="n1", gpus=Gpus(8)), JobSpec(job_id="a", gpus_per_replica=Gpus(2))])
def test_gpus_when_written_down_are_plain_numbers(record: msgspec.Struct) -> None:
    written = msgspec.json.encode(record)
    assert msgspec.json.decode(written, type=type(record)) == record
    assert {value for value in msgspec.json.decode(written).values() if isinstance(value, int)} <= {8, 2}


def test_free_gpus_when_jobs_are_placed_are_what_they_leave() -> None:
    view = a_state(jobs=[a_job("a", gpus_per_replica=2)], nodes=[a_node("n1"), a_node("n2", is_ready=False)])
    assert view.free_gpus({"a": ("n1", "n1")}) == {"n1": 0, "n2": 0}
    assert view.free_gpus({}) == {"n1": 4, "n2": 0}


def test_request_of_gpus_counts_whole_devices_and_shares_in_one_quantity() -> None:
    requests = [
        GpuRequest(),
        GpuRequest(milli=250, memory_mib=4_000),
        GpuRequest(memory_mib=1),
        GpuRequest(devices=Gpus(2)),
    ]
    assert [(each.count, each.milli_each, each.total_milli) for each in requests] == [
        (0, 0, 0),
        (1, 250, 250),
        (1, 0, 0),
        (2, 1_000, 2_000),
    ]
    assert [each.is_share for each in requests] == [False, True, True, False]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"milli": -1}, "negative"),
        ({"milli": 1_000}, "a share has 1000 milli, expected < 1000"),
        ({"devices": Gpus(1), "milli": 1}, "whole GPUs or for a share of one, not for both"),
        ({"devices": Gpus(1), "memory_mib": 1}, "not for both"),
    ],
)
def test_request_of_gpus_when_it_makes_no_sense_is_refused(fields: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        GpuRequest(**fields)  # type: ignore[arg-type]
    with pytest.raises(msgspec.ValidationError, match=message):
        msgspec.json.decode(msgspec.json.encode(fields), type=GpuRequest)


@pytest.mark.parametrize(
    ("core", "memory_mib", "expected"),
    [
        (0, 0, GpuRequest()),
        (0, 512, GpuRequest(memory_mib=512)),
        (25, 512, GpuRequest(milli=250, memory_mib=512)),
        (100, 512, GpuRequest(devices=Gpus(1))),
        (300, 0, GpuRequest(devices=Gpus(3))),
    ],
)
def test_core_when_below_a_device_is_a_share_and_else_whole_devices(
    core: int, memory_mib: int, expected: GpuRequest
) -> None:
    assert request_of_core(core, memory_mib) == expected


@pytest.mark.parametrize("core", [150, 101, 250])
def test_core_when_above_a_device_and_no_multiple_is_refused(core: int) -> None:
    with pytest.raises(ValueError, match=f"gpu-core is {core}, expected less than 100 or a multiple of it"):
        request_of_core(core, 0)


def test_core_when_negative_is_refused() -> None:
    with pytest.raises(ValueError, match="negative"):
        request_of_core(-5, 0)
