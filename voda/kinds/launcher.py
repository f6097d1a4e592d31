"""What starts the processes of a job: mpirun, torchrun, or nothing but its own program.

Rule: only words that are commands count, those of a shell's script among them; arguments of the program do not.
"""

import shlex
from collections.abc import Iterator, Sequence
from pathlib import PurePath
from typing import Final, Literal, cast

from voda.kinds.base import FieldWarning, JobManifest
from voda.programs.launchers import launcher_in_command

JobLauncher = Literal["program", "torchrun", "mpirun", ""]
"""Empty: not known, as of a job without a manifest."""

_TORCH_MODULES: Final = frozenset({"torch.distributed.run", "torch.distributed.launch"})
_ACCELERATE: Final = frozenset({"accelerate", "accelerate-launch", "accelerate.commands.launch"})
_MOST_WORDS: Final = 16
_MOST_SCRIPT: Final = 4_096
"""Characters of a script that are looked at: the rest may be a megabyte, and costs time at every start of voda."""
_STARTERS: Final = frozenset({"env", "nice", "nohup", "time"})
_SHELLS: Final = frozenset({"sh", "bash", "dash", "ksh", "zsh"})


def launcher_of(job: JobManifest) -> JobLauncher:
    """Return what starts the processes; an MPIJob's launcher starts them by mpirun where it names nothing else."""
    role = next((name for name in job.role_names if name in job.roles), "")
    if not role or not job.roles[role].template.spec.containers:
        return ""
    _, container = job.main_container(role)
    words = (*(container.command or ()), *(container.args or ()))
    found = next((found for word in _commands(words) if (found := _launcher_named(word))), "")
    return cast(JobLauncher, found) or ("mpirun" if job.local_launch == "mpi" else "program")


def accelerate_warnings(job: JobManifest) -> Iterator[FieldWarning]:
    """Yield a warning for each role whose agents accelerate starts for one size, though their operator tells bounds."""
    for role in job.roles:
        index, container = job.main_container(role)
        words = (*(container.command or ()), *(container.args or ()))
        is_accelerate = any(PurePath(word).name in _ACCELERATE for word in _commands(words) if word)
        if is_accelerate and not any("c10d" in word for word in words):
            yield FieldWarning(
                field=f"{job.path(role)}.template.spec.containers[{index}].command",
                message="accelerate launch needs --rdzv_backend c10d to be elastic: it overrides PET_RDZV_BACKEND (or"
                " use torchrun, which runs the same script)",
            )


def _launcher_named(word: str) -> str:
    if word in _TORCH_MODULES:
        return "torchrun"
    return (launcher_in_command([word]) or "") if word else ""


def _commands(words: Sequence[str]) -> Iterator[str]:
    """Yield the words that may be commands: the first, Python's module, those before `--` of `voda run`, of a script
    all.
    """
    words = _without_starters(words)
    name = PurePath(words[0]).name if words else ""
    if name in _SHELLS:
        for word in words[1:_MOST_WORDS]:
            yield from _split(word[:_MOST_SCRIPT])
    elif list(words[:2]) == ["voda", "run"]:
        own = words[: words.index("--")] if "--" in words else words
        yield from (word.rpartition("=")[2] for word in own)
    else:
        yield from words[: 3 if "-m" in words[1:2] else 1]


def _without_starters(words: Sequence[str]) -> Sequence[str]:
    """Return a command without what only starts it: `env A=1 nice -n 5 torchrun train.py` is `torchrun train.py`."""
    at = 0
    while at < len(words) and (PurePath(words[at]).name in _STARTERS or (at and _is_option(words[at]))):
        at += 1
    return words[at:]


def _is_option(word: str) -> bool:
    return not word or word.startswith("-") or "=" in word or word.isdigit()


def _split(script: str) -> Sequence[str]:
    try:
        return shlex.split(script, comments=True)
    except ValueError:
        return script.split()
