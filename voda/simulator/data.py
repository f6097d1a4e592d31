"""Finds the public data sets on this machine, and says where to get one that is absent.

Rule: voda downloads and ships none of them; the error for a missing set says how to get it.
"""

import csv
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct

from voda import config
from voda.domain.errors import DataNotFound, InvalidInput


class DataSet(Struct, frozen=True, kw_only=True):
    """A public data set: how to recognise it, and where to get it."""

    name: str
    folders: tuple[str, ...]
    """Where it may be below the data folder, best first: voda's layout, then a clone of the repository."""
    marker: tuple[str, ...]
    """Files of which one must be there."""
    origin: str
    """Repository, branch, path and licence, as a clause."""


POLLUX = DataSet(
    name="adaptdl-osdi21",
    folders=("adaptdl-osdi21", "adaptdl/simulator", "simulator", "."),
    marker=("traces/cifar10/placements.csv",),
    origin="github.com/petuum/adaptdl, branch osdi21-artifact, path simulator/ (Apache-2.0)",
)
PHILLY = DataSet(
    name="adaptdl-osdi21",
    folders=POLLUX.folders,
    marker=("traces/philly.csv.gz", "traces/philly.csv"),
    origin="github.com/petuum/adaptdl, branch osdi21-artifact, path simulator/ (Apache-2.0; its traces/philly.csv is"
    " reduced from github.com/msr-fiddle/philly-traces, CC BY 4.0)",
)
VODA_EXP = DataSet(
    name="voda-exp",
    folders=("voda-exp",),
    marker=("measured_jobs.csv",),
    origin="github.com/heyfey/vodascheduler, branch exp, path exp/ (Apache-2.0; measured_jobs.csv and"
    " measured_allocations.jsonl are read off its scheduler logs)",
)


def find_folder(data_set: DataSet, data: Path | None = None) -> Path:
    """Return the folder of a data set below `data`, else VODA_DATA, else ./data or ../shared/data.

    Raises:
        DataNotFound: it is in none of them; the message says where to get it.
    """
    chosen = data or config.data_folder()
    places = (chosen,) if chosen else (Path("data"), Path("../shared/data"))
    for place in places:
        for folder in data_set.folders:
            if find_file(place / folder, data_set.marker) is not None:
                return place / folder
    raise DataNotFound(
        f"the data set {data_set.name} is not in {' or '.join(str(place) for place in places)}: get {data_set.origin}"
        f" and put it at {places[0] / data_set.folders[0]}, or name the folder that holds it with --data or VODA_DATA"
    )


def find_file(folder: Path, names: tuple[str, ...]) -> Path | None:
    """Return the first of `names` that is a file below `folder`; None where there is none."""
    return next((folder / name for name in names if (folder / name).is_file()), None)


@contextmanager
def intact(path: Path, data_set: DataSet) -> Iterator[None]:
    """Raise InvalidInput where reading `path` fails because the file is damaged."""
    try:
        yield
    except (OSError, EOFError, LookupError, ValueError, zlib.error, csv.Error) as error:
        raise InvalidInput(
            f"{path}: the file is damaged or has another format ({type(error).__name__}: {error}); get it again from"
            f" {data_set.origin}"
        ) from error
