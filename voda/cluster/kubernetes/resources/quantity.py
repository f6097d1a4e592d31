"""Kubernetes quantities, as exact integers: "7910m" CPUs, "16Gi" bytes, 2 GPUs.

Rule: thousandths are the unit of everything counted here, and what is finer is rounded away from zero, as Kubernetes
does; no text, however long or large its exponent, costs more than a moment.
"""

import re
from fractions import Fraction
from functools import lru_cache
from typing import Final

from voda.domain.errors import InvalidInput

LARGEST: Final = (2**63 - 1) * 1000
"""Thousandths. Kubernetes takes whatever is larger for this."""
_LONGEST: Final = 64
_PARTS: Final = re.compile(
    r"(?P<sign>[+-]?)(?:(?P<whole>[0-9]+)\.?(?P<part>[0-9]*)|\.(?P<bare>[0-9]+))"
    r"(?:[eE](?P<exponent>[+-]?[0-9]+)|(?P<suffix>[KMGTPE]i|[numkMGTPE]?))"
)
_SUFFIXES: Final = {
    "": Fraction(1000),
    **{suffix: Fraction(10) ** (3 * (step - 2)) for step, suffix in enumerate("num")},
    **{suffix: Fraction(1000) * 1000**step for step, suffix in enumerate("kMGTPE", 1)},
    **{suffix: Fraction(1000) * 1024**step for step, suffix in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), 1)},
}
"""Suffix -> thousandths."""
_FARTHEST: Final = 100
"""Decimal places: an exponent beyond is as good as this, for 64 digits cannot make up for it."""


def milli(quantity: str | int | float) -> int:
    """Return a quantity in thousandths, rounded away from zero.

    Args:
        quantity: as written in an object: 500m, 1.5Gi, 1e3; a number is legal too.

    Raises:
        InvalidInput: it is no quantity.
    """
    # True equals 1, and would be answered from the cache.
    if isinstance(quantity, bool):
        raise _no_quantity(quantity)
    return _milli(quantity)


def format_amount(milli_units: int, resource: str) -> str:
    """Write an amount for people: 3.5 CPUs, 16 GiB of memory, 2 nvidia.com/gpu, 1 pod."""
    if resource in ("memory", "ephemeral-storage"):
        return f"{_bytes(milli_units // 1000)} of {resource}"
    amount = f"{milli_units / 1000:.6g}"
    unit = {"cpu": "CPU", "pods": "pod"}.get(resource)
    return f"{amount} {resource}" if unit is None else f"{amount} {unit}{'' if amount == '1' else 's'}"


def _bytes(count: int) -> str:
    for power, unit in ((4, "TiB"), (3, "GiB"), (2, "MiB"), (1, "KiB")):
        if abs(count) >= 1024**power:
            return f"{count / 1024**power:.4g} {unit}"
    return f"{count} B"


# A cluster writes few different quantities, ten thousand times.
@lru_cache(maxsize=4096)
def _milli(quantity: str | int | float) -> int:
    text = str(quantity)
    parts = _PARTS.fullmatch(text) if len(text) <= _LONGEST else None
    if parts is None:
        raise _no_quantity(quantity)
    fraction = parts["part"] or parts["bare"] or ""
    digits = Fraction(int((parts["whole"] or "") + fraction), 10 ** len(fraction))
    scale = _power(parts["exponent"]) if parts["exponent"] else _SUFFIXES[parts["suffix"]]
    size = min(-(-digits * scale // 1), LARGEST)
    return -size if parts["sign"] == "-" else size


def _power(exponent: str) -> Fraction:
    return Fraction(10) ** max(-_FARTHEST, min(int(exponent), _FARTHEST)) * 1000


def _no_quantity(quantity: object) -> InvalidInput:
    text = str(quantity)
    got = repr(text if len(text) <= _LONGEST else f"{text[:_LONGEST]}...")
    return InvalidInput(f"expected a Kubernetes quantity such as 500m, 2 or 16Gi, got {got}")
