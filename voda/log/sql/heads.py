"""The heads of streams as a database keeps them beside the events.

Rule: an append follows an event that is there. A row is believed only where it says what the event at its position
says; of an event that was archived the row is all there is.
"""

from typing import NamedTuple

from voda.domain.errors import LogDamaged
from voda.events.codec import body_of
from voda.events.envelope import Head, Sealed


class StoredHead(NamedTuple):
    """A row of `schema.STORED_HEADS`."""

    stream: str
    version: int
    hash: str
    epoch: int
    position: int
    """Of the stream's last event."""
    body: bytes | None
    """Of the event there; None where there is none."""
    base: int
    """Position of the last event that was archived."""

    def proven(self) -> Head:
        """Return the head.

        Raises:
            LogDamaged: the stream's last event is missing, or another one than the row says.
        """
        head = Head(self.version, self.hash, self.epoch)
        if self.body is None:
            if _is_number(self.version) and _is_number(self.position) and self.position <= self.base:
                return head
            raise self._damaged("it is missing")
        sealed = Sealed(self.position, self.body, self.hash)
        if not sealed.is_intact:
            raise self._damaged("another stands there")
        body = body_of(sealed)
        if (body.stream, body.version, body.epoch) != (self.stream, self.version, self.epoch):
            raise self._damaged("another stands there")
        return head

    def _damaged(self, found: str) -> LogDamaged:
        position = self.position if _is_number(self.position) else None
        where = f"position {self.position}: the list of streams names version {self.version} of {self.stream} here"
        return LogDamaged(f"{where}, but {found}: run 'voda log verify', restore the log from a copy", position)


def _is_number(value: object) -> bool:
    """A damaged SQLite file may hold text where its column promises a number."""
    return isinstance(value, int)
