"""What happens, in the leader's own log, so that `kubectl logs` tells what was decided and done.

Rule: a line for each event, in the words of `voda events`; what jobs report of themselves is detail.
"""

import logging

from voda.events.envelope import Event
from voda.events.event_text import describe, subject_of
from voda.events.types import JobProgressed

_log = logging.getLogger(__name__)


def log_event(event: Event) -> None:
    """Write an event down: INFO, and DEBUG for a report."""
    level = logging.DEBUG if isinstance(event.data, JobProgressed) else logging.INFO
    if _log.isEnabledFor(level):
        # In one line, whatever words of others are in it.
        what = " ".join(describe(event).split())
        _log.log(level, "%s position=%d about=%s: %s", event.type, event.position, subject_of(event), what)
