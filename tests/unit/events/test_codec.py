"""What a voda of another age wrote is read in the words of today, or refused."""

from typing import Any

import msgspec
import pytest

from voda.domain.errors import LogDamaged, LogTooNew
from voda.events.codec import UPCASTERS, unseal
from voda.events.envelope import Event, Sealed, hash_of
from voda.events.types import JobSubmitted


def recorded(schema: int, spec: dict[str, Any]) -> Event:
    """Return `job.submitted` as it was sealed in this schema."""
    body = {
        "stream": "job.a",
        "version": 1,
        "event_id": "1",
        "type": JobSubmitted.TYPE,
        "schema": schema,
        "recorded_at": "2026-01-01T00:00:00Z",
        "prev": "0" * 64,
        "data": {"spec": spec},
    }
    sealed = msgspec.json.encode(body)
    return unseal(Sealed(1, sealed, hash_of(sealed)))


def test_fact_of_an_old_schema_is_lifted_step_by_step_while_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    def renamed(old: str, new: str) -> Any:
        return lambda data: {"spec": {new if name == old else name: value for name, value in data["spec"].items()}}

    now = JobSubmitted.SCHEMA
    monkeypatch.setitem(UPCASTERS, ("job.submitted", now - 2), renamed("least", "min_num"))
    monkeypatch.setitem(UPCASTERS, ("job.submitted", now - 1), renamed("min_num", "min_replicas"))
    event = recorded(now - 2, {"job_id": "a", "least": 3})
    assert isinstance(event.data, JobSubmitted)
    assert (event.data.spec.min_replicas, event.schema) == (3, now - 2)


def test_schema_that_is_not_known_is_refused() -> None:
    with pytest.raises(LogTooNew, match="upgrade voda"):
        recorded(JobSubmitted.SCHEMA + 1, {"job_id": "a"})
    with pytest.raises(LogDamaged, match="in schema 1, which no released voda wrote"):
        recorded(1, {"job_id": "a"})
