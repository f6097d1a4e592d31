"""The process that forecasts: takes states on its standard input, and gives forecasts on its standard output.

Rule: it ends when its input does, so it never outlives who started it.
"""

import os
import struct
import sys
from collections.abc import Mapping
from typing import BinaryIO, Final

import msgspec
from msgspec import Struct

from voda.simulator.whatif.forecast import Forecast, forecast_in_process

HEADER: Final = struct.Struct(">Q")
"""Before each message: its bytes."""
_NICENESS: Final = 10


class Question(Struct, frozen=True, kw_only=True):
    """What is to be forecast."""

    dump: bytes
    """Of `Live`."""
    pool: str
    now: float


def framed(message: bytes) -> bytes:
    """Return a message as it travels."""
    return HEADER.pack(len(message)) + message


def answered(question: bytes) -> bytes:
    """Return the answer to an encoded question: job id -> Forecast."""
    asked = msgspec.msgpack.decode(question, type=Question)
    found: Mapping[str, Forecast] = forecast_in_process(asked.dump, asked.pool, asked.now)
    return msgspec.msgpack.encode(found)


def main(questions: BinaryIO, answers: BinaryIO) -> None:
    """Answer until there are no more questions."""
    os.nice(_NICENESS)
    while len(header := questions.read(HEADER.size)) == HEADER.size:
        (size,) = HEADER.unpack(header)
        answers.write(framed(answered(questions.read(size))))
        answers.flush()


if __name__ == "__main__":
    main(sys.stdin.buffer, sys.stdout.buffer)
