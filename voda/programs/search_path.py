"""Where a job of this machine finds its program, and what of a like name lies there."""

import os
import shutil
import sys
from collections.abc import Mapping
from contextlib import suppress
from difflib import get_close_matches
from pathlib import Path
from typing import Final

_ALIKE: Final = 0.75
_LONGEST_COMPARED: Final = 80


def search_path(env: Mapping[str, object]) -> str:
    """Return the PATH of a job with these variables: its own, else that of here with voda's scripts after it."""
    here = os.pathsep.join([*os.get_exec_path(), str(Path(sys.executable).parent)])
    return str(env.get("PATH", here))


def close_program(name: str, path: str) -> str:
    """Return the program on the PATH whose name is most like this one; empty where none is like it."""
    names: set[str] = set()
    for folder in path.split(os.pathsep):
        with suppress(OSError):
            names.update(os.listdir(folder or os.curdir))
    close = get_close_matches(name[:_LONGEST_COMPARED], sorted(names), n=1, cutoff=_ALIKE)
    return next((one for one in close if shutil.which(one, path=path)), "")


def close_file(file: Path) -> str:
    """Return the name of the file in the same folder whose name is most like that of this one; empty: none is."""
    names: list[str] = []
    with suppress(OSError):
        names = sorted(os.listdir(file.parent))
    close = get_close_matches(file.name[:_LONGEST_COMPARED], names, n=1, cutoff=_ALIKE)
    return next((one for one in close if (file.parent / one).is_file()), "")
