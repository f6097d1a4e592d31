"""Frames: what a client writes, a server reads; what a server writes, the client reads however it is cut."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voda.client.exec import websocket
from voda.client.exec.websocket import BINARY, PING, TEXT, FrameParser, Message, accept_of, frame
from voda.domain.errors import PermanentError


def of_server(opcode: int, payload: bytes, *, is_last: bool = True) -> bytes:
    """Return a frame as a server writes it: not masked."""
    size = len(payload)
    length = (
        bytes([size])
        if size < 126
        else b"\x7e" + size.to_bytes(2, "big")
        if size < 1 << 16
        else b"\x7f" + size.to_bytes(8, "big")
    )
    return bytes([(0x80 if is_last else 0) | opcode]) + length + payload


def test_accept_is_that_of_the_example_in_rfc_6455() -> None:
    assert accept_of("dGhlIHNhbXBsZSBub25jZQ==") == "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="


@given(sizes=st.lists(st.sampled_from([0, 1, 125, 126, 127, 65_535, 65_536, 70_000]), max_size=4), cuts=st.data())
def test_messages_are_read_whole_however_they_arrive(sizes: list[int], cuts: st.DataObject) -> None:
    sent = [Message(BINARY, bytes([index]) * size) for index, size in enumerate(sizes)]
    stream = b"".join(of_server(*message) for message in sent)
    places = sorted({0, len(stream), *cuts.draw(st.lists(st.integers(0, len(stream)), max_size=5))})
    parser = FrameParser()
    assert [message for begin, end in pairwise(places) for message in parser.feed(stream[begin:end])] == sent


def test_message_in_pieces_is_one_and_a_ping_may_come_between() -> None:
    stream = of_server(TEXT, b"a", is_last=False) + of_server(PING, b"?") + of_server(0, b"b")
    assert [*FrameParser().feed(stream)] == [Message(PING, b"?"), Message(TEXT, b"ab")]


@pytest.mark.parametrize(
    "stream",
    [
        of_server(0, b"a"),
        of_server(TEXT, b"a", is_last=False) + of_server(TEXT, b"b"),
        b"\x82\x7f" + (1 << 40).to_bytes(8, "big"),
        b"\x82\x81abcde",
        b"\xc2\x01a",
        b"HTTP/1.1 200 OK",
        (of_server(BINARY, b"x" * 600_000, is_last=False) + of_server(0, b"x" * 600_000)),
    ],
    ids=["continuation", "nested", "too long", "masked", "compressed", "http", "too long in pieces"],
)
def test_anything_else_ends_the_connection_with_a_sentence(stream: bytes) -> None:
    with pytest.raises(PermanentError, match="the server sent"):
        [*FrameParser().feed(stream)]


@given(st.sampled_from([0, 1, 125, 126, 65_535, 65_536]))
def test_frame_of_the_client_is_masked_and_whole(size: int) -> None:
    written, payload = frame(BINARY, b"\xa5" * size), b"\xa5" * size
    assert written[0] == 0x80 | BINARY
    head = 2 if size < 126 else 4 if size < 1 << 16 else 10
    mask, masked = written[head : head + 4], written[head + 4 :]
    assert written[1] & 0x80
    assert bytes(byte ^ mask[index % 4] for index, byte in enumerate(masked)) == payload


def test_keys_are_of_sixteen_bytes_and_differ() -> None:
    assert len({websocket.new_key() for _ in range(10)}) == 10
