"""Logs written by older versions are read by today's code, and keep their bytes.

`old_schemas.jsonl` holds `job.submitted` in schema 1, which spoke of accelerator and num_proc. It is history: never
edit it, add a file for each schema that is left behind.
"""

from pathlib import Path

import msgspec
import pytest

from tests.builders import a_fact, a_node, a_spec
from voda.events.codec import UPCASTERS
from voda.events.types import JobProgressed, JobSubmitted, NodeChanged
from voda.log.archive.archive import Archive
from voda.log.archive.copy import restore_archive
from voda.log.archive.segment import events_of, export_segment
from voda.log.archive.verify import verify_log
from voda.log.factory import open_log, open_store
from voda.log.memory import MemoryStore

OLD = Path(__file__).with_name("old_schemas.jsonl")


async def test_job_submitted_in_the_words_of_schema_1_is_read_in_those_of_today() -> None:
    events = await (await open_log(OLD)).read(0, 100)
    submitted = [event.data.spec for event in events if isinstance(event.data, JobSubmitted)]
    assert submitted == [
        a_spec(
            "resnet50-1",
            pool="tesla-v100",
            requested_replicas=2,
            min_replicas=1,
            max_replicas=4,
            epochs=30,
            user="alice",
        ),
        a_spec("bert-1", pool="tesla-v100", requested_replicas=1, epochs=3, priority=5),
        a_spec("mnist-1", pool="tesla-v100", max_replicas=2),
    ]
    assert [event.schema for event in events if event.type == "job.submitted"] == [1, 1, 2]


async def test_job_progressed_in_schema_1_has_no_seconds_of_an_epoch_that_was_disturbed() -> None:
    events = await (await open_log(OLD.parent / "logs" / "elastic-tiresias.jsonl")).read(0, 1000)
    progress = [(event.schema, event.data) for event in events if isinstance(event.data, JobProgressed)]
    assert {schema for schema, _ in progress} == {1}
    assert {fact.is_raw for _, fact in progress} == {False}


def test_node_of_schema_1_that_was_not_ready_or_cordoned_was_left_at_once() -> None:
    data = NodeChanged(node=a_node("n1"))
    body: list[dict[str, bool]] = [{"is_ready": False}, {"is_schedulable": False}, {}]
    found = [UPCASTERS["node.changed", 1]({"node": {"name": "n1", "gpus": 4, **fields}}) for fields in body]
    nodes = [msgspec.convert(each, NodeChanged).node for each in found]
    assert [node.is_draining for node in nodes] == [True, True, False]
    assert nodes[-1] == data.node


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_old_log_is_carried_on_without_touching_a_byte_of_it(kind: str, tmp_path: Path) -> None:
    store = MemoryStore() if kind == "memory" else await open_store(tmp_path / "log.db")
    await restore_archive(Archive.open_export(OLD), store)
    assert await store.read_sealed(0, 100) == events_of(export_segment(OLD))
    await store.append("job.resnet50-1", 2, [a_fact("new")])
    assert (await verify_log(store)).problem == ""
    await store.close()
