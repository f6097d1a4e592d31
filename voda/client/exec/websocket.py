"""The client's side of WebSocket frames (RFC 6455), without any input or output.

Rule: what a server sends is bounded, never masked, and in order; anything else ends the connection with one sentence.
"""

import base64
import hashlib
import os
from collections.abc import Iterator
from typing import Final, NamedTuple

from voda.domain.errors import PermanentError

TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10
_CONTINUATION: Final = 0
_GUID: Final = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_MOST_BYTES: Final = 1 << 20
"""Of one message."""
_LONG, _LONGER = 126, 127
"""In place of a length: it follows in 2 bytes, in 8."""


class Message(NamedTuple):
    opcode: int
    payload: bytes


def new_key() -> str:
    """Return what a client asks with in Sec-WebSocket-Key."""
    return base64.b64encode(os.urandom(16)).decode()


def accept_of(key: str) -> str:
    """Return what a server answers to a key, in Sec-WebSocket-Accept."""
    return base64.b64encode(hashlib.sha1(key.encode() + _GUID, usedforsecurity=False).digest()).decode()


def frame(opcode: int, payload: bytes) -> bytes:
    """Return a message as one frame, masked as a client has to."""
    size = len(payload)
    head = bytes([0x80 | opcode])
    if size < _LONG:
        head += bytes([0x80 | size])
    elif size < 1 << 16:
        head += bytes([0x80 | _LONG]) + size.to_bytes(2, "big")
    else:
        head += bytes([0x80 | _LONGER]) + size.to_bytes(8, "big")
    mask = os.urandom(4)
    pattern = (mask * (size // 4 + 1))[:size]
    masked = int.from_bytes(payload, "big") ^ int.from_bytes(pattern, "big")
    return head + mask + masked.to_bytes(size, "big")


class FrameParser:
    """Makes messages of what arrives."""

    def __init__(self) -> None:
        self._received = bytearray()
        self._message = bytearray()
        """Of a message in several frames, those so far."""
        self._opcode = _CONTINUATION

    def feed(self, data: bytes) -> Iterator[Message]:
        """Yield the messages that are complete; raises PermanentError where this is no WebSocket."""
        self._received += data
        while (found := self._frame()) is not None:
            is_last, opcode, payload = found
            if opcode >= CLOSE:
                yield Message(opcode, payload)
                continue
            if (opcode == _CONTINUATION) != (self._opcode != _CONTINUATION):
                raise _not_understood("a message in the middle of another one")
            self._opcode = opcode or self._opcode
            self._message += payload
            if len(self._message) > _MOST_BYTES:
                raise _not_understood("a message that is too long")
            if is_last:
                whole, self._opcode, self._message = Message(self._opcode, bytes(self._message)), 0, bytearray()
                yield whole

    def _frame(self) -> tuple[bool, int, bytes] | None:
        """Return the next frame that is complete: whether it is the last of its message, its kind, what it carries."""
        received = self._received
        if len(received) < 2:
            return None
        if received[0] & 0x70 or received[1] & 0x80:
            raise _not_understood("a frame of an unknown form")
        size, at = received[1], 2
        if size >= _LONG:
            at = 4 if size == _LONG else 10
            if len(received) < at:
                return None
            size = int.from_bytes(received[2:at], "big")
        if size > _MOST_BYTES:
            raise _not_understood("a frame that is too long")
        if len(received) < at + size:
            return None
        payload, first = bytes(received[at : at + size]), received[0]
        del received[: at + size]
        return bool(first & 0x80), first & 0x0F, payload


def _not_understood(what: str) -> PermanentError:
    return PermanentError(f"the server sent {what}: it is not voda, or of another version")
