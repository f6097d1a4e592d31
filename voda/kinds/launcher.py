"""What starts the processes of a job: mpirun, torchrun, or nothing but its own program.

Rule: only words that are commands count, those of a shell's script among them; arguments of the program do not.
"""

import shlex
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import islice, pairwise, takewhile
from pathlib import PurePath
from typing import Final, Literal, cast

from voda.kinds.base import FieldWarning, JobManifest
from voda.programs.launchers import is_python, launcher_in_command, script_in_command

JobLauncher = Literal["program", "torchrun", "mpirun", ""]
"""Empty: not known, as of a job without a manifest."""

_TORCH_MODULES: Final = frozenset({"torch.distributed.run", "torch.distributed.launch"})
_ACCELERATE: Final = frozenset({"accelerate-launch", "accelerate.commands.launch"})
_MOST_WORDS: Final = 16
_MOST_SCRIPT: Final = 16_384
"""Characters of a script that are looked at: the rest may be a megabyte, and costs time at every start of voda."""
_SHELLS: Final = frozenset({"sh", "bash", "dash", "ksh", "zsh"})
_STARTERS: Final = frozenset(
    {"conda", "dumb-init", "env", "exec", "nice", "nohup", "numactl", "setsid", "stdbuf", "taskset", "time"}
    | {"timeout", "tini", "uv"}
)
"""They start the command that follows among their words."""


def launcher_of(job: JobManifest) -> JobLauncher:
    """Return what starts the processes; an MPIJob's launcher starts them by mpirun where it names nothing else."""
    role = next((name for name in job.role_names if name in job.roles), "")
    if not role or not job.roles[role].template.spec.containers:
        return ""
    _, container = job.main_container(role)
    words = (*(container.command or ()), *(container.args or ()))
    found = next((found for word, after in _commands(words) if (found := _launcher_named(word, after))), "")
    return cast(JobLauncher, found) or ("mpirun" if job.local_launch == "mpi" else "program")


def starts_agents(words: Sequence[str]) -> bool:
    """Return whether a command starts agents of torch, which have to meet those of the other workers."""
    return any(_launcher_named(word, after) == "torchrun" for word, after in _commands(words))


def accelerate_warnings(job: JobManifest) -> Iterator[FieldWarning]:
    """Yield a warning for each role whose agents accelerate starts for one size, though their operator tells bounds."""
    for role in job.roles:
        index, container = job.main_container(role)
        words = (*(container.command or ()), *(container.args or ()))
        is_accelerate = any(_is_accelerate(word, after) for word, after in _commands(words))
        if is_accelerate and not any("c10d" in word for word in words):
            yield FieldWarning(
                field=f"{job.path(role)}.template.spec.containers[{index}].command",
                message="accelerate launch needs --rdzv_backend c10d to be elastic: it overrides PET_RDZV_BACKEND (or"
                " use torchrun, which runs the same script)",
            )


def _launcher_named(word: str, after: str) -> str:
    if word in _TORCH_MODULES or _is_accelerate(word, after):
        return "torchrun"
    # Whoever installs accelerate names it too.
    return (launcher_in_command([word]) or "") if word and PurePath(word).name != "accelerate" else ""


def _is_accelerate(word: str, after: str) -> bool:
    name = PurePath(word).name
    return name in _ACCELERATE or (name == "accelerate" and after == "launch")


def _commands(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the words that may be commands, each with the one after it: the first, Python's module, those before `--`
    of `voda run`; of a shell's script, and behind what only starts another command, all before a program of Python.
    """
    name = PurePath(words[0]).name if words else ""
    found: Sequence[str] = ()
    if name in _SHELLS:
        found = _parts(words[1:])
    elif name in _STARTERS:
        found = _parts(takewhile(lambda word: not word.endswith(".py") or " " in word, words[1:]))
    elif list(words[:2]) == ["voda", "run"]:
        own = words[: words.index("--")] if "--" in words else words
        found = [word.rpartition("=")[2] for word in own]
    elif words:
        yield (words[0], "".join(words[1:2]))
        found = [script_in_command(words).removesuffix(".py").replace("/", ".")] if is_python(words[0]) else ()
    yield from pairwise([*found, ""])


def _parts(words: Iterable[str]) -> Sequence[str]:
    return [part for word in islice(words, _MOST_WORDS) for part in _split(word[:_MOST_SCRIPT])]


@lru_cache(maxsize=256)
def _split(script: str) -> Sequence[str]:
    try:
        return shlex.split(script, comments=True)
    except ValueError:
        return script.split()
