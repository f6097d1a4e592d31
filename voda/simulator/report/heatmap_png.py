"""Shares as a PNG in one colour of varying opacity, so that it suits a light and a dark page alike."""

import base64
import struct
import zlib

import numpy as np

from voda.projections.timeline import Floats

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_LEVELS = 256


def data_uri(shares: Floats, colour: tuple[int, int, int]) -> str:
    """Return an image of shape (rows, columns) as a data URI; 0 is transparent, 1 is the full colour.

    Source: Portable Network Graphics, W3C Recommendation, third edition (palette images, chunk tRNS).
    """
    rows, columns = shares.shape
    levels = np.rint(shares * (_LEVELS - 1)).astype(np.uint8)
    # Every row begins with the number of its filter; 0 = none.
    lines = np.hstack([np.zeros((rows, 1), np.uint8), levels]).tobytes()
    png = b"".join(
        (
            _SIGNATURE,
            _chunk(b"IHDR", struct.pack(">IIBBBBB", columns, rows, 8, 3, 0, 0, 0)),
            _chunk(b"PLTE", bytes(colour) * _LEVELS),
            _chunk(b"tRNS", bytes(range(_LEVELS))),
            _chunk(b"IDAT", zlib.compress(lines, 9)),
            _chunk(b"IEND", b""),
        )
    )
    return "data:image/png;base64," + base64.b64encode(png).decode()


def _chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
