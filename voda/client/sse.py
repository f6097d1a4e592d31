"""Server-sent events, read from the bytes of a stream."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SseMessage:
    id: str
    data: bytes


class SseParser:
    """Parses a stream of bytes into messages, after the HTML standard, section 9.2.6; their types are not used."""

    def __init__(self, last_id: str = "") -> None:
        self.last_id = last_id
        """Where to resume: a block without data moves it too."""
        self._rest = b""
        self._id = last_id
        self._data: list[bytes] = []

    def feed(self, piece: bytes) -> list[SseMessage]:
        """Return the messages that this piece completes."""
        *lines, self._rest = (self._rest + piece).split(b"\n")
        return [message for line in lines if (message := self._line(line.removesuffix(b"\r")))]

    def _line(self, line: bytes) -> SseMessage | None:
        if not line:
            data, self._data, self.last_id = self._data, [], self._id
            return SseMessage(self._id, b"\n".join(data)) if data else None
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            self._data.append(value)
        elif field == b"id" and b"\0" not in value:
            self._id = value.decode("utf-8", "replace")
        return None
