"""The Python that runs a script of the PATH, such as torchrun, and whether it has a library.

Rule: the library is looked up, not imported, which may take seconds; where the answer is not known, nothing is said.
"""

import shlex
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import PurePath
from typing import Final

from voda.programs.launchers import is_python

_MOST_LINE_BYTES: Final = 4_096
_LIMIT_S: Final = 2.0
_IS_THERE: Final = """\
import sys
if not getattr(sys.flags, "safe_path", False):
    sys.path.pop(0)
from importlib.util import find_spec
spec = find_spec(sys.argv[1])
sys.exit(3 if spec is None or spec.origin is None else 0)
"""
"""The current folder, which is first on the path of `python -c` unless PYTHONSAFEPATH is set, is not on that of a
script elsewhere.
"""
_IS_MISSING: Final = 3


def python_of(script: str) -> str:
    """Return the Python that the first line of a script names; empty where it names none."""
    line = b""
    with suppress(OSError), open(script, "rb") as file:
        line = file.readline(_MOST_LINE_BYTES)
    words: list[str] = []
    with suppress(ValueError):
        words = shlex.split(line.removeprefix(b"#!").decode("utf-8", "replace")) if line.startswith(b"#!") else []
    if words and PurePath(words[0]).name == "env":
        words = words[1:]
    return words[0] if words and is_python(words[0]) else ""


def lacks_library(python: str, library: str, environment: Mapping[str, str]) -> bool:
    """Return whether it is seen that a Python has no library of that name; a folder without modules is none."""
    import subprocess

    command = [python, "-c", _IS_THERE, library]
    try:
        done = subprocess.run(
            command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, timeout=_LIMIT_S, check=False
        )
    except (OSError, subprocess.SubprocessError, ValueError):
        # ValueError: no process can have that environment, which whoever checks the job says better.
        return False
    return done.returncode == _IS_MISSING


def torchless_python(environment: Mapping[str, str]) -> str:
    """Return the Python of the torchrun on the PATH where it has no torch; empty: it has, or there is no torchrun."""
    path = environment.get("PATH", "")
    torchrun = shutil.which("torchrun", path=path)
    python = python_of(torchrun) if torchrun is not None else ""
    found = shutil.which(python, path=path) if python else None
    return found if found is not None and lacks_library(found, "torch", environment) else ""
