"""GPUs add up, and divide into replicas; on the wire they are numbers."""

import msgspec
import pytest

from tests.builders import a_job, a_node, a_state
from voda.domain.gpus import NO_GPUS, Gpus, total
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
