"""Writes events to the leader's own log, so that `kubectl logs` shows what voda decided and did.

Rule: a line for each event, in the words of `voda events`; progress reports of jobs are DEBUG, all others INFO.
"""

import logging

from voda.events.envelope import Event
from voda.events.event_text import describe, subject_of
from voda.events.types import JobProgressed

_log = logging.getLogger(__name__)


def log_event(event: Event) -> None:
    """Write one event to the log."""
    level = logging.DEBUG if isinstance(event.data, JobProgressed) else logging.INFO
    if _log.isEnabledFor(level):
        # In one line, whatever text of users is in it.
        what = " ".join(describe(event).split())
        _log.log(level, "%s position=%d about=%s: %s", event.type, event.position, subject_of(event), what)
