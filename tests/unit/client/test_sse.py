"""Claims about reading server-sent events."""

import pytest

from voda.client.sse import SseMessage, SseParser

STREAM = (
    b': heartbeat\n\nid: 7\nevent: job.submitted\ndata: {"a":\ndata:1}\n\n'
    b"id: 8\r\ndata: x\r\n\r\nretry: 2000\n\nid: 9\nda"
)


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_messages_are_the_same_however_the_stream_is_cut(size: int) -> None:
    parser = SseParser()
    pieces = [STREAM[start : start + size] for start in range(0, len(STREAM), size)]
    assert [message for piece in pieces for message in parser.feed(piece)] == [
        SseMessage("7", b'{"a":\n1}'),
        SseMessage("8", b"x"),
    ]
