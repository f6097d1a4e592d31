"""What one object must not do to all others: stop what is done for them.

Rule: only errors that nobody foresaw end here, and they are logged with their traceback; whoever can say more, or
knows when to try again, catches them before.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

_log = logging.getLogger(__name__)


@contextmanager
def survived(doing: str, about: str) -> Iterator[None]:
    """Go on after the block, whatever error nobody foresaw it raised.

    Args:
        doing: what the block does, one or two words.
        about: the one object or job it does it for.
    """
    try:
        yield
    except Exception:  # whatever it is, it concerns one object; everything else must go on
        _log.exception("unforeseen doing=%s about=%s", doing, about[:200])
