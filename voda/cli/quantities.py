"""Spans and sizes as users write them on the command line: 30d, 1d12h, 5GB."""

import re
from typing import Final

from voda.domain.errors import InvalidInput

_SPAN: Final = re.compile(r"(?=.)(?:([0-9]{1,6})d)?(?:([0-9]{1,6})h)?(?:([0-9]{1,6})m)?(?:([0-9]{1,9})s)?")
_UNITS_S: Final = (86_400, 3_600, 60, 1)
_SIZE: Final = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,6})?) ?([kmgtp]?)(i?)b?", re.IGNORECASE)
_PREFIXES: Final = ("", "k", "m", "g", "t", "p")


def span_s(text: str, option: str) -> float:
    """Return the seconds of a span such as 30d, 12h or 1d12h; raises InvalidInput that names the option."""
    if text == "0":
        return 0.0
    if (match := _SPAN.fullmatch(text)) is None:
        raise InvalidInput(f"{option}: expected a span such as 30d, 12h or 1d12h, got {text[:40]!r}")
    return float(sum(int(part or 0) * unit_s for part, unit_s in zip(match.groups(), _UNITS_S, strict=True)))


def size_bytes(text: str, option: str) -> int:
    """Return the bytes of a size such as 500MB, 5GB or 4GiB; raises InvalidInput that names the option."""
    if (match := _SIZE.fullmatch(text.strip())) is None:
        raise InvalidInput(f"{option}: expected a size such as 500MB, 5GB or 4GiB, got {text[:40]!r}")
    number, prefix, binary = match.groups()
    unit: int = (1024 if binary else 1000) ** _PREFIXES.index(prefix.lower())
    return round(float(number) * unit)
