"""A timed log tells of every append how it ended."""

import pytest

from tests.builders import a_fact
from tests.telemetry import RecordingTelemetry
from voda.domain.errors import Fenced, InvalidInput, VersionConflict
from voda.events.envelope import ANY_VERSION
from voda.log.instrumented_store import InstrumentedStore
from voda.log.memory import MemoryStore
from voda.metrics import APPEND_DURATION, FACTS_APPENDED


async def test_appends_are_told_with_their_outcome() -> None:
    telemetry, outcomes = RecordingTelemetry(), list[str]()
    store = InstrumentedStore(MemoryStore(), telemetry, appended=outcomes.append)
    await store.append("job.a", 0, [a_fact("1"), a_fact("2")], epoch=2)
    with pytest.raises(VersionConflict):
        await store.append("job.a", 7, [a_fact("3")], epoch=2)
    with pytest.raises(Fenced):
        await store.append("job.a", ANY_VERSION, [a_fact("4")], epoch=1)
    with pytest.raises(InvalidInput):
        await store.append("job.a", ANY_VERSION, [a_fact("5", at=float("nan"))], epoch=2)
    assert outcomes == ["ok", "conflict", "fenced", "failed"]
    assert telemetry.spans(APPEND_DURATION) == [("ok",), ("conflict",), ("fenced",), ("failed",)]
    assert telemetry.counted == [(FACTS_APPENDED, (), 2)]
