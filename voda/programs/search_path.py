"""Where a job of this machine finds its program, and what of a like name lies there."""

import os
import shutil
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from voda.domain.errors import closest


def own_folder() -> str:
    """Return the folder of voda's own programs, and of the Python that runs it."""
    return str(Path(sys.executable).parent)


def search_path(env: Mapping[str, object]) -> str:
    """Return the PATH of a job with these variables: its own, else that of here with voda's scripts after it."""
    here = os.pathsep.join([*os.get_exec_path(), own_folder()])
    return str(env.get("PATH", here))


def close_program(name: str, path: str) -> str:
    """Return the program on the PATH whose name is most like this one; empty where none is like it."""
    names: set[str] = set()
    for folder in path.split(os.pathsep):
        with suppress(OSError):
            names.update(os.listdir(folder or os.curdir))
    close = closest(name, sorted(names))
    return close if close and shutil.which(close, path=path) else ""


def close_file(file: Path) -> str:
    """Return the name of the file in the same folder whose name is most like that of this one; empty: none is."""
    names: list[str] = []
    with suppress(OSError):
        names = sorted(os.listdir(file.parent))
    close = closest(file.name, names)
    return close if close and (file.parent / close).is_file() else ""
