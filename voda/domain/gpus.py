"""A quantity of GPUs: what nodes have, what workers need, what policies and placers hand out.

Rules: replicas times GPUs per replica are GPUs, GPUs divided by GPUs per replica are replicas. The type checker takes
no plain number where GPUs are declared; it does not see that GPUs plus replicas, or GPUs times GPUs, is wrong. A
quantity counts whole cards: whatever a node says of its devices, or a request of a share of one, policies and placers
hand out whole cards by this type alone.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:

    class Gpus(int):
        """A number of whole GPUs."""

        def __neg__(self) -> "Gpus": ...
        def __add__(self, other: int, /) -> "Gpus": ...
        def __sub__(self, other: int, /) -> "Gpus": ...
        def __mul__(self, replicas: int, /) -> "Gpus": ...
        def __rmul__(self, replicas: int, /) -> "Gpus": ...

else:
    # A decision adds and compares some 100,000 of them; and numbers are what the log and the wire hold.
    Gpus = int

NO_GPUS: Final = Gpus(0)


def total(quantities: Iterable[Gpus]) -> Gpus:
    """Return the sum."""
    return sum(quantities, NO_GPUS)
