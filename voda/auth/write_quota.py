"""How much each user may write to the log in an hour: what is acknowledged stays there, on a disk that all share.

Rules: pure, the time is a parameter; a minute that was written in counts until all of it is an hour ago. Admins are not
counted, and what only gives back, such as a cancellation, is never refused.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Final

import msgspec

from voda.auth.callers import Caller
from voda.domain.errors import InvalidInput, QuotaExceeded
from voda.events.types import AnyFact
from voda.text import size as size_text

_MINUTE_S: Final = 60
_WINDOW: Final = 61
"""Minutes: the present one, which has just begun, and the hour before it."""
_ENVELOPE_BYTES: Final = 400
"""Of an event beside its data, with what the store needs to find it."""


def payer(caller: Caller, owner: str) -> str:
    """Return the user who is charged for what a caller has recorded about a job of `owner`; empty: nobody."""
    if caller.role == "job":
        return owner
    return caller.user if caller.role == "user" else ""


def size_of(fact: AnyFact) -> int:
    """Return about how many bytes of the log an event with the fact takes."""
    return len(msgspec.json.encode(fact)) + _ENVELOPE_BYTES


DEFAULT_BYTES: Final = 250_000_000
"""A job that reports a hundred metrics each second writes 30 MB within an hour."""


class WriteQuota:
    """What users have written within the hour, but those of whom `is_admin` holds; `most_bytes` 0 = no limit."""

    def __init__(self, most_bytes: int = 0, is_admin: Callable[[str], bool] = lambda _user: False) -> None:
        self._most_bytes = most_bytes
        self._is_admin = is_admin
        self._written: dict[str, dict[int, int]] = {}
        """User -> minute since the epoch -> bytes, oldest first."""
        self._minute = 0

    @contextmanager
    def charged(self, user: str, size: int, now: float) -> Iterator[Callable[[], None]]:
        """Count bytes that a user writes in the block, not where it fails; raises what `charge` does.

        A block that is cancelled counts: what it wrote may be in the log. Yield what takes the charge back, for a block
        that wrote nothing.
        """
        counted = self.charge(user, size, now)
        minute = self._minute

        def give_back() -> None:
            if counted and minute in self._written.get(user, {}):
                self._written[user][minute] -= counted

        try:
            yield give_back
        except Exception:
            give_back()
            raise

    def charge(self, user: str, size: int, now: float) -> int:
        """Count bytes that a user is about to write, and return how many count; of the empty user and admins, none.

        Raises:
            QuotaExceeded: not before `retry_after_s` has passed.
            InvalidInput: it is more than a user may ever write within an hour.
        """
        if not user or not self._most_bytes or self._is_admin(user):
            return 0
        # A clock that was set back adds to the newest minute.
        minute = max(self._minute, int(now // _MINUTE_S))
        if minute != self._minute:
            self._forget(minute)
        if size > self._most_bytes:
            raise InvalidInput(
                f"this takes {size_text(size)} of the log, and a user may write {size_text(self._most_bytes)} within"
                " an hour: send less at once"
            )
        written = self._written.setdefault(user, {})
        excess = sum(written.values()) + size - self._most_bytes
        if excess > 0:
            raise self._exceeded(user, excess, now)
        written[minute] = written.get(minute, 0) + size
        return size

    def _exceeded(self, user: str, excess: int, now: float) -> QuotaExceeded:
        until = now
        for minute, size in self._written[user].items():
            until, excess = float((minute + _WINDOW) * _MINUTE_S), excess - size
            if excess <= 0:
                break
        at = datetime.fromtimestamp(until, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        return QuotaExceeded(
            f"user {user} has written {size_text(self._most_bytes)} to the log within an hour, as much as one may:"
            f" try again at {at}",
            max(1.0, until - now),
        )

    def _forget(self, minute: int) -> None:
        """Forget what was written more than an hour ago, and users who have written nothing since."""
        self._minute = minute
        for user, written in list(self._written.items()):
            while written and (first := next(iter(written))) <= minute - _WINDOW:
                del written[first]
            if not written:
                del self._written[user]
