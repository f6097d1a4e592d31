"""The journal notices whatever the log and the answers of the API tell differently."""

from typing import Any

import pytest

from tests.builders import Log
from tests.dst.invariants.broken import Broken
from tests.dst.journal import KEY, Answered, Journal
from voda.domain.job import JobSpec
from voda.domain.reasons.requests import Requested
from voda.events.envelope import Event
from voda.events.types import AnyFact, JobCanceled, JobCancelRequested, JobChanged, JobSubmitted, SettingsChanged


class Told:
    """A journal, and a log that it follows."""

    def __init__(self) -> None:
        self.journal = Journal()
        self._log = Log()

    def committed(self, fact: AnyFact) -> Event:
        event = self._log.add(fact, at=0.0)
        self.journal.committed(event)
        return event

    def answered(self, kind: Any, tag: str, status: int, job_id: str = "") -> None:
        self.journal.sent(kind, tag)
        self.journal.answered(Answered(kind=kind, tag=tag, status=status, job_id=job_id))


def a_submit(job_id: str, key: str) -> JobSubmitted:
    return JobSubmitted(spec=JobSpec(job_id=job_id, manifest={"metadata": {"name": "x", "labels": {KEY: key}}}))


def test_journal_when_what_was_acknowledged_is_not_there_then_it_is_noticed() -> None:
    with pytest.raises(Broken, match="acknowledged: submit k1 was answered 201, and is not in the log"):
        Told().answered("submit", "k1", 201, "a")


def test_journal_when_a_key_became_two_jobs_then_it_is_noticed() -> None:
    told = Told()
    told.journal.sent("submit", "k1")
    told.committed(a_submit("a", "k1"))
    with pytest.raises(Broken, match="exactly once: submit k1 is recorded twice"):
        told.committed(a_submit("a-2", "k1"))


def test_journal_when_an_answer_names_another_job_then_it_is_noticed() -> None:
    told = Told()
    told.journal.sent("submit", "k1")
    told.committed(a_submit("a", "k1"))
    with pytest.raises(Broken, match="exactly once: submit k1 is job a, users were told b"):
        told.answered("submit", "k1", 200, "b")


def test_journal_when_what_was_refused_is_there_then_it_is_noticed() -> None:
    told = Told()
    told.journal.sent("settings", "5.000001")
    told.committed(SettingsChanged(pool="p", settings={"ratelimit_s": 5.000001}))
    with pytest.raises(Broken, match=r"refused: settings 5\.000001 was refused"):
        told.journal.answered(Answered(kind="settings", tag="5.000001", status=412))


def test_journal_when_what_was_refused_comes_later_then_it_is_noticed() -> None:
    told = Told()
    told.answered("submit", "k1", 409)
    with pytest.raises(Broken, match="refused: submit k1 was refused, and is recorded"):
        told.committed(a_submit("a", "k1"))


def test_journal_when_an_answer_was_lost_then_it_may_come_once_or_not() -> None:
    told = Told()
    told.answered("submit", "k1", 0)
    told.answered("submit", "k1", 409)
    told.committed(a_submit("a", "k1"))
    told.answered("submit", "k2", 0)
    assert [answer.status for answer in told.journal.answers] == [0, 409, 0]
    with pytest.raises(Broken, match="exactly once: submit k1 is recorded twice"):
        told.committed(a_submit("a-2", "k1"))


def test_journal_when_a_change_is_refused_after_the_end_then_it_may_be_there() -> None:
    told = Told()
    told.committed(JobCanceled(job_id="a"))
    for job_id, priority in (("a", 100), ("b", 101)):
        told.journal.sent("change", str(priority))
        told.committed(JobChanged(job_id=job_id, priority=priority))
    told.journal.answered(Answered(kind="change", tag="100", status=409))
    with pytest.raises(Broken, match="refused: change 101 was refused"):
        told.journal.answered(Answered(kind="change", tag="101", status=409))


def test_journal_when_a_job_is_being_canceled_then_a_delete_need_not_be_there() -> None:
    told = Told()
    told.journal.sent("delete", "dst-1")
    told.committed(JobCancelRequested(job_id="a", reason=Requested(text="dst-1")))
    told.answered("delete", "dst-2", 202, "a")
    with pytest.raises(Broken, match="acknowledged: delete dst-3"):
        told.answered("delete", "dst-3", 202, "b")


def test_journal_when_a_read_is_older_than_what_was_acknowledged_then_it_is_noticed() -> None:
    told = Told()
    told.journal.sent("change", "100")
    event = told.committed(JobChanged(job_id="a", priority=100))
    answer = Answered(kind="change", tag="100", status=200, job_id="a", position=event.position)
    told.journal.answered(answer)
    told.journal.read(answer, event.position)
    with pytest.raises(Broken, match="read your writes: change 100 is at position 1, and was read at revision 0"):
        told.journal.read(answer, event.position - 1)


def test_journal_when_a_job_had_ended_then_a_read_need_not_show_what_came_later() -> None:
    told = Told()
    end = told.committed(JobCanceled(job_id="a"))
    for job_id, tag in (("a", "dst-1"), ("b", "dst-2")):
        told.journal.sent("delete", tag)
        told.committed(JobCancelRequested(job_id=job_id, reason=Requested(text=tag)))
    told.journal.read(Answered(kind="delete", tag="dst-1", status=202, job_id="a", position=2), end.position)
    with pytest.raises(Broken, match="read your writes: delete dst-2 is at position 3, and was read at revision 1"):
        told.journal.read(Answered(kind="delete", tag="dst-2", status=202, job_id="b", position=3), end.position)
