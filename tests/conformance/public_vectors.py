"""The recorded vectors, read from the public data; tests that need them are skipped where they are absent."""

from functools import cache
from typing import Final

from tests.conformance.hived.vectors import Vectors, read_vectors
from tests.public_data import folder_or_skip
from voda.simulator.data import DataSet

HIVED: Final = DataSet(
    name="hived",
    folders=("hived",),
    marker=("vectors.json",),
    origin="what HiveD did in recorded runs, as vectors of operations and outcomes",
)


@cache
def public_vectors() -> Vectors:
    """Return the vectors, or skip the test."""
    return read_vectors(folder_or_skip(HIVED) / "vectors.json")
