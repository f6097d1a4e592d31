"""The envelope of an event: its metadata, and the hash that proves its bytes.

Rule: an event's hash covers its body, and its body has the hash of the event before it in the same stream.
"""

from hashlib import sha256

from msgspec import Struct

from voda.events.types import AnyFact

GENESIS = "0" * 64
"""Hash before the first event of a stream."""
ANY_VERSION = -1
"""Expected version of an append that is valid at any version of the stream."""


class Fact(Struct, frozen=True, kw_only=True, gc=False):
    """A fact to be recorded; the store makes it an Event."""

    data: AnyFact
    event_id: str
    recorded_at: float
    actor: str = ""
    correlation_id: str = ""
    causation_id: str = ""


class Event(Struct, frozen=True, kw_only=True, gc=False):
    """A recorded fact. `position` is the total order over all streams, `version` the order in its stream."""

    position: int
    stream: str
    version: int
    event_id: str
    type: str
    schema: int
    recorded_at: float
    actor: str
    correlation_id: str
    causation_id: str
    epoch: int
    data: AnyFact


class Head(Struct, frozen=True, array_like=True, gc=False):
    """The last event of one stream. An empty stream has version 0."""

    version: int = 0
    hash: str = GENESIS
    epoch: int = 0
    """Highest leadership epoch that wrote to the stream."""


class Sealed(Struct, frozen=True, gc=False):
    """An event as stored: the body byte for byte, and the hash over it."""

    position: int
    body: bytes
    hash: str

    @property
    def is_intact(self) -> bool:
        # A damaged database may hold text where its column promises bytes.
        return type(self.body) is bytes and hash_of(self.body) == self.hash


def hash_of(body: bytes) -> str:
    """Return the SHA-256 of an event's body, 64 hexadecimal digits."""
    return sha256(body).hexdigest()
