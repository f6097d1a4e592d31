"""Sizes as users write them on the command line: 500MB, 5GB."""

import re
from typing import Final

from voda.domain.errors import InvalidInput

_SIZE: Final = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,6})?) ?([kmgtp]?)(i?)b?", re.IGNORECASE)
_PREFIXES: Final = ("", "k", "m", "g", "t", "p")


def size_bytes(text: str, option: str) -> int:
    """Return the bytes of a size such as 500MB, 5GB or 4GiB; raises InvalidInput that names the option."""
    if (match := _SIZE.fullmatch(text.strip())) is None:
        raise InvalidInput(f"{option}: expected a size such as 500MB, 5GB or 4GiB, got {text[:40]!r}")
    number, prefix, binary = match.groups()
    unit: int = (1024 if binary else 1000) ** _PREFIXES.index(prefix.lower())
    return round(float(number) * unit)
