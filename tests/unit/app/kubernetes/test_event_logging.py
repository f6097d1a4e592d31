"""The leader's log has a line for each event."""

import logging

import pytest

from tests.builders import Log
from voda.app.kubernetes.event_logging import log_event
from voda.events.types import JobFailed, JobProgressed


def test_event_is_a_line_with_position_and_job(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    log = Log()
    for fact in (JobProgressed(job_id="a", epochs_done=1.0, workers=1), JobFailed(job_id="a", reason="out of\nmemory")):
        log_event(log.add(fact, at=1.0))
    assert caplog.messages == ["job.failed position=2 about=a: failed: out of memory"]
