"""The PATH that a program gets from whoever submits it on the same machine, and the Python that runs it there.

Rules: the job finds what the caller's shell finds, from whatever folder; of the caller's other variables it gets those
that name the environment of that Python, none that may hold a secret. A library is looked up, not imported, which may
take seconds; where the answer is not known, nothing is said.
"""

import os
import shlex
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import Final

from voda import config
from voda.programs.launchers import Launcher, LauncherChoice, is_python, torchrun_words
from voda.programs.search_path import own_folder

_MOST_LINE_BYTES: Final = 4_096
_LIMIT_S: Final = 2.0
_MISSING: Final = """\
import sys
if not getattr(sys.flags, "safe_path", False):
    sys.path.pop(0)
from importlib.util import find_spec
specs = {name: find_spec(name) for name in sys.argv[1:]}
print(*[name for name, spec in specs.items() if spec is None or spec.origin is None])
"""
"""The current folder, which is first on the path of `python -c` unless PYTHONSAFEPATH is set, is not on that of a
script elsewhere. A folder without modules is no library.
"""
_OF_ENVIRONMENTS: Final = ("VIRTUAL_ENV", "CONDA_PREFIX")
"""Name a folder whose programs are on the PATH while it is active."""
_OF_SHIMS: Final = ("PYENV_ROOT", "PYENV_VERSION")
"""By which a shim of pyenv on the PATH chooses its Python."""
_OF_LOADING: Final = ("PYTHONPATH", "PYTHONHOME", "LD_LIBRARY_PATH")
"""Where a Python finds libraries; a job gets them only where its user says so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundProgram:
    """A command, and what it is on a PATH."""

    words: tuple[str, ...]
    """`python3`, or a whole path, in place of a `python` that would be another one, or none."""
    folders: tuple[str, ...]
    """The PATH, absolute."""
    file: str
    """Its first word; empty: not found."""
    python: str
    """The Python that runs it; empty: not known, or none."""
    missing: Sequence[str] = ()
    """Libraries that the Python is seen not to have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SoughtProgram:
    """A command that is looked for on a PATH."""

    words: tuple[str, ...]
    launcher: Launcher
    libraries: Sequence[str]
    """What its Python has to have."""
    env: Mapping[str, str]
    """Variables that it is given."""
    folder: str = ""
    """Where it begins."""

    def on_path(self, path: str) -> FoundProgram:
        """Return what it is on this PATH, voda's own programs behind it; torchrun has a Python of its own."""
        is_started = self.launcher == "torchrun" and is_python(self.words[0])
        return self._sought(torchrun_words(self.words)[0] if is_started else self.words[0], path)

    def _sought(self, word: str, path: str) -> FoundProgram:
        folders = folders_of(path)
        path = os.pathsep.join([*folders, own_folder()])
        file = shutil.which(os.path.abspath(os.path.join(self.folder, word)) if "/" in word else word, path=path) or ""
        python = file if is_python(word) else _python_of_script(file, path)
        inherited = {name: value for name, value in config.environment().items() if name not in _OF_LOADING}
        environment = {**inherited, **self.env, "PATH": path}
        missing = missing_libraries(python, self.libraries, environment) if python else ()
        return FoundProgram(words=self.words, folders=folders, file=file, python=python, missing=missing)

    def on_callers_path(self, path: str) -> FoundProgram:
        """Return what it is on the PATH of whoever submits it.

        A `python` that only voda has is the caller's python3; where voda's own is first and lacks a library, it is
        another one, if there is one. The Python of a command decides whose torchrun starts it.
        """
        found = self._with_python(path)
        others = [folder for folder in found.folders if not _is_own(folder)]
        if found.missing and _is_own(os.path.dirname(found.python)) and others:
            found = self._with_python(os.pathsep.join(others))
        if self.launcher != "torchrun" or not found.python or "/" in found.words[0] or found.file != found.python:
            return found
        path = os.pathsep.join([*found.folders, own_folder()])
        torchrun = shutil.which("torchrun", path=path) or ""
        homes = (os.path.dirname(torchrun), os.path.dirname(_python_of_script(torchrun, path)))
        is_its = os.path.dirname(found.python) in homes
        return found if is_its else replace(found, words=(found.python, *found.words[1:]))

    def _with_python(self, path: str) -> FoundProgram:
        is_python3 = self.words[0] == "python" and not shutil.which("python", path=path)
        if is_python3 and shutil.which("python3", path=path):
            return replace(self, words=("python3", *self.words[1:]))._sought("python3", path)
        return self._sought(self.words[0], path)


def _is_own(folder: str) -> bool:
    return os.path.realpath(folder) == os.path.realpath(own_folder())


def folders_of(path: str) -> tuple[str, ...]:
    """Return the folders of a PATH as they are seen from here; those that no manifest can hold are left out."""
    found = dict.fromkeys(os.path.abspath(folder) for folder in path.split(os.pathsep))
    return tuple(folder for folder in found if folder.isprintable())


def variables_of_environment(environment: Mapping[str, str], folders: Sequence[str]) -> dict[str, str]:
    """Return the variables that name the environment of a Python on this PATH."""
    names = [name for name in _OF_ENVIRONMENTS if os.path.abspath(f"{environment.get(name)}/bin") in folders]
    if any(folder.endswith("/shims") for folder in folders):
        names += _OF_SHIMS
    return {name: value for name in names if (value := environment.get(name)) and value.isprintable()}


def needed_libraries(choice: LauncherChoice, env: Mapping[str, str]) -> Sequence[str]:
    """Return the libraries without which a program fails at once, as far as its Python can be asked for them here."""
    # A manifest expands `$(NAME)` where the job runs.
    if any("$(" in value for name, value in env.items() if name in ("PATH", *_OF_LOADING)):
        return ()
    torch = ["torch"] if choice.launcher == "torchrun" else []
    return [*torch, *(name for name in choice.libraries if name not in torch)]


def without_library(found: FoundProgram, env: Mapping[str, str]) -> str:
    """Return a warning where a program with these variables would fail for want of a library; else empty."""
    if not found.missing:
        return ""
    left = [name for name in _OF_LOADING if config.environment().get(name) and name not in env]
    hint = "put the Python that has it first on your PATH, or name that by its path"
    if left:
        hint = f"it does not get your {' and '.join(left)}: --export {','.join(left)} passes that on"
    return f"warning: {found.python} has no {found.missing[0]}: the job would fail at once; {hint}"


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


def _python_of_script(script: str, path: str) -> str:
    python = python_of(script)
    return (shutil.which(python, path=path) or "") if python else ""


def missing_libraries(python: str, libraries: Sequence[str], environment: Mapping[str, str]) -> Sequence[str]:
    """Return those libraries of which it is seen that a Python has none."""
    import subprocess

    if not libraries:
        return ()
    command = [python, "-c", _MISSING, *libraries]
    try:
        done = subprocess.run(
            command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, timeout=_LIMIT_S, check=True
        )
    except (OSError, subprocess.SubprocessError, ValueError):
        # ValueError: no process can have that environment, which whoever checks the job says better.
        return ()
    return done.stdout.decode("utf-8", "replace").split()
