"""A program as a user submits it, with the options of `voda submit --`; and how it will be started.

Rule: how it will be started, and why, can be said in one line before anything is sent.
"""

import os
import re
import shutil
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePath
from typing import Final

from voda.domain.errors import InvalidInput
from voda.domain.sizes import JobSizes
from voda.domain.sizes.text import parse_sizes
from voda.programs.amounts import (
    cpus_of,
    gpu_memory_mib_of,
    gpu_milli_of,
    memory_of,
    nice_of,
    retries_of,
    time_limit_s_of,
)
from voda.programs.interpreter import (
    FoundProgram,
    SoughtProgram,
    needed_libraries,
    variables_of_environment,
    without_library,
)
from voda.programs.kept_code import script_to_keep
from voda.programs.launchers import (
    MOST_SCRIPT_BYTES,
    Launcher,
    LauncherChoice,
    launcher_in_command,
    launcher_of_script,
    program_in_command,
    script_in_command,
    torchrun_words,
)
from voda.programs.program_manifest import ProgramJob
from voda.programs.search_path import close_file, close_program, search_path

_OF_CHECKPOINTS: Final = (b"checkpoint", b"ckpt", b"voda_job_dir", b"resume", b"restore", b"load_state")
"""Words of scripts that go on where they were."""
_LONGEST_DEFAULT_NAME: Final = 40
_MANIFEST_SUFFIXES: Final = (".yaml", ".yml", ".json")


@dataclass(frozen=True, slots=True)
class Program:
    """A program without a manifest; what is left empty has the default of `voda submit --`."""

    command: Sequence[str]
    """Such as ["python", "train.py", "--lr", "0.1"]."""
    name: str = field(default="", kw_only=True)
    """By default that of its script, with the first number that is free."""
    workers: str | int | None = field(default=None, kw_only=True)
    """Such as "2", or for an elastic job "1-4", "2-16:2" (steps) or "1,2,4,8"; with `deepspeed`, of its sizes."""
    deepspeed: str = field(default="", kw_only=True)
    """DeepSpeed's configuration, a file whose elastic section says at how many GPUs the program runs."""
    gpus_per_worker: int = field(default=1, kw_only=True)
    gpu_milli: int = field(default=0, kw_only=True)
    """A part of one GPU in place of whole ones: thousandths of its compute, a multiple of 10."""
    gpu_memory: str = field(default="", kw_only=True)
    """And of its memory: "4Gi", "500Mi"."""
    memory: str = field(default="", kw_only=True)
    """A worker may have: "8Gi"; it is killed beyond that."""
    cpus: str | float = field(default="", kw_only=True)
    """A worker may have: 4, or "0.5"."""
    retries: int | None = field(default=None, kw_only=True)
    """How often it is tried again after a failure."""
    nice: int | None = field(default=None, kw_only=True)
    """How much it gives way for CPUs, 0 to 19; on one machine."""
    env: Mapping[str, object] = field(default_factory=dict, kw_only=True)
    export: Sequence[str] = field(default=(), kw_only=True)
    """Variables with their values here."""
    env_from_file: Mapping[str, str] = field(default_factory=dict, kw_only=True)
    """Secrets: variable -> file of this machine, which the job reads at each start."""
    workdir: str = field(default="", kw_only=True)
    live: bool = field(default=False, kw_only=True)
    """Each start runs its script as it is then, not as it was at the submit; on one machine."""
    time: str = field(default="", kw_only=True)
    """It fails if it runs longer: "90m", "4h", "1d12h"."""
    image: str = field(default="", kw_only=True)
    """Kubernetes needs one."""
    launcher: Launcher | None = field(default=None, kw_only=True)
    """By default what the program imports decides."""
    namespace: str = field(default="", kw_only=True)
    labels: Mapping[str, str] = field(default_factory=dict, kw_only=True)
    array: str = field(default="", kw_only=True)
    """Many jobs of it: "0-99%10"."""
    after: Sequence[str] = field(default=(), kw_only=True)
    """Jobs that have to complete first, or with ":any" behind to end."""
    pool: str = field(default="", kw_only=True)
    virtual_cluster: str = field(default="", kw_only=True)
    pinned_cell: str = field(default="", kw_only=True)
    device_class: str = field(default="", kw_only=True)
    priority: int | None = field(default=None, kw_only=True)
    """Higher goes first, whatever the policy."""
    epochs: int | None = field(default=None, kw_only=True)
    restartable: str = field(default="", kw_only=True)
    """never: once it has begun, it is neither stopped for others nor begun again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramStart:
    job: ProgramJob
    program: str
    """Its script, or its first word."""
    note: str
    """How it is started, and why, as one line."""
    warning: str = ""
    """What may keep it from starting, as one line; empty: nothing is seen."""
    runs_with: str = ""
    """The Python that runs it here, else its program; empty: not known."""
    is_guessed: bool = False
    """Whether what the script holds, and no word of the user, decided how it is started, or was no help."""


def start_of(options: Program, caller: Mapping[str, str] | None = None) -> ProgramStart:
    """Return how a program is started.

    Args:
        options: what the user says of it.
        caller: variables of whoever submits it on the machine where it runs, whose PATH it gets unless it has its own;
            None: it has that of the machine.

    Raises:
        InvalidInput: an option cannot be used, or there is no such script.
    """
    if isinstance(options.command, str):
        raise InvalidInput(f'a program is a list of words, such as ["python", "train.py"], got {options.command!r:.80}')
    words = _runnable([str(word) for word in options.command])
    script = script_in_command(words)
    sizes = _sizes(options)
    choice = _choice(words, script, options)
    shown = program_in_command(words)
    if choice.launcher == "plain" and sizes.most > 1 and not options.launcher:
        raise InvalidInput(
            f"{shown} would run as a plain program, which has one worker, not {sizes.most}, because {choice.reason};"
            " --launcher mpirun or torchrun starts more"
        )
    found = _found(words, choice, options, caller)
    words = [*found.words]
    job = _job_of(options, shown, found, caller, choice.launcher)
    job = replace(job, least=sizes.least, most=sizes.most, sizes=None if sizes.is_dense else sizes)
    _refuse_odd_share(options, sizes.most, choice.launcher)
    _refuse_unrunnable(words, options)
    starter = PurePath(words[0]).name if launcher_in_command(words) else choice.launcher
    how = "as a plain program" if choice.launcher == "plain" else f"with {starter}"
    hint = "" if options.launcher else "; --launcher chooses another"
    is_own = bool(options.launcher) or launcher_in_command(words) is not None
    return ProgramStart(
        job=job,
        program=shown,
        note=f"runs {shown} {how}, because {choice.reason}{hint}",
        warning=_not_on_path(words, choice.launcher, options)
        or without_library(found, _given(options))
        or _unusable_file(job.env_files)
        or (_begins_again(script, shown, options) if job.least < job.most else ""),
        runs_with=found.python or found.file,
        is_guessed=not is_own and (choice.launcher != "plain" or choice.is_unread),
    )


def _job_of(
    options: Program, shown: str, found: FoundProgram, caller: Mapping[str, str] | None, launcher: Launcher
) -> ProgramJob:
    return ProgramJob(
        name=options.name or _name_of(shown),
        words=found.words,
        launcher=launcher,
        gpus_per_worker=options.gpus_per_worker,
        gpu_milli=options.gpu_milli,
        gpu_memory_mib=gpu_memory_mib_of(options.gpu_memory) if options.gpu_memory else 0,
        env=tuple({**variables_of_environment(caller or {}, found.folders), **_given(options)}.items()),
        env_files=_env_files(options),
        path="" if caller is None else os.pathsep.join(found.folders),
        interpreter="" if caller is None else found.python,
        working_dir=_folder(options),
        script="" if options.image else script_to_keep(found.words, shown, options.workdir),
        time_limit_s=time_limit_s_of(options.time) if options.time else 0,
        image=options.image,
        memory=memory_of(options.memory) if options.memory else "",
        cpus=cpus_of(str(options.cpus)) if options.cpus else "",
        retries=None if options.retries is None else retries_of(options.retries),
        nice=None if options.nice is None else nice_of(options.nice),
    )


def _refuse_odd_share(options: Program, most: int, launcher: Launcher) -> None:
    """Refuse a part of a GPU that no program can have."""
    if not options.gpu_milli and not options.gpu_memory:
        return
    if options.gpu_milli:
        gpu_milli_of(str(options.gpu_milli))
    if options.gpus_per_worker != 1 or most > 1 or launcher != "plain":
        raise InvalidInput(
            "--gpu-milli and --gpu-memory are for a plain program with one worker: leave out --gpus-per-worker,"
            " --workers and other launchers than --launcher plain"
        )


def _runnable(words: Sequence[str]) -> list[str]:
    """Return the command; a script without a folder before it is run by Python, as it is not on the PATH."""
    if not words or not words[0]:
        raise InvalidInput("no program after --: expected one, such as voda submit -- python train.py")
    if words[0].lower().endswith(_MANIFEST_SUFFIXES):
        raise InvalidInput(f"{words[0]} is a manifest, not a program: voda submit {words[0]}")
    is_bare_script = words[0].endswith(".py") and "/" not in words[0] and not words[0].startswith("-")
    return ["python", *words] if is_bare_script else [*words]


def _refuse_unrunnable(words: Sequence[str], options: Program) -> None:
    """Refuse a program that is seen not to run here, unless the user says how it runs elsewhere."""
    # A manifest expands `$(NAME)` where the job runs.
    if options.image or options.launcher or "$(" in words[0]:
        return
    if "/" not in words[0]:
        _refuse_unknown(words[0], search_path(options.env))
        return
    file = Path(options.workdir) / words[0]
    try:
        is_there = file.is_file()
    except OSError:
        return
    if not is_there:
        problem = _absence(file)
    elif not os.access(file, os.X_OK):
        problem = f"you may not execute it (chmod +x {words[0]}, or name its interpreter: sh {words[0]})"
    else:
        return
    raise InvalidInput(f"{words[0]}: {problem}; if it lies elsewhere, say how it runs with --launcher")


def _refuse_unknown(program: str, path: str) -> None:
    if "$(" in path or shutil.which(program, path=path) is not None:
        return
    advice = f" (did you mean {close}?)" if (close := close_program(program, path)) else ""
    raise InvalidInput(
        f"{program[:80]}: there is no such program on the PATH here{advice}; if it lies elsewhere, say how it runs with"
        " --launcher"
    )


def _not_on_path(words: Sequence[str], launcher: Launcher, options: Program) -> str:
    """Return a warning where a program that the job needs is not on the PATH here: that of the job may differ."""
    if options.image:
        return ""
    is_own = launcher == "plain" or (launcher == "torchrun" and torchrun_words(words)[0] != "torchrun")
    path, needed = search_path(options.env), {words[0], *([] if is_own else [launcher])}
    absent = sorted(name for name in needed if "/" not in name and shutil.which(name, path=path) is None)
    verb = "is" if len(absent) == 1 else "are"
    return f"warning: {' and '.join(absent)} {verb} not on the PATH here" if absent else ""


def _given(options: Program) -> Mapping[str, str]:
    return {name: str(value) for name, value in options.env.items()}


def _found(
    words: Sequence[str], choice: LauncherChoice, options: Program, caller: Mapping[str, str] | None
) -> FoundProgram:
    """Return what a program is here."""
    env = _given(options)
    # An image has its own libraries.
    libraries = () if options.image else needed_libraries(choice, env)
    sought = SoughtProgram(
        words=tuple(words), launcher=choice.launcher, libraries=libraries, env=env, folder=options.workdir
    )
    if caller is None:
        return sought.on_path(search_path(env))
    return sought.on_callers_path(caller.get("PATH", os.defpath))


def _choice(words: Sequence[str], script: str, options: Program) -> LauncherChoice:
    if options.launcher:
        return LauncherChoice(options.launcher, "--launcher says so")
    if (own := launcher_in_command(words)) is not None:
        return LauncherChoice(own, f"the command begins with {words[0]}")
    if not script and PurePath(words[0]).name == "deepspeed":
        return LauncherChoice("plain", "deepspeed starts its processes itself, on one machine")
    if not script:
        return LauncherChoice("plain", "its command names no Python file")
    # A module may be installed, and a script may lie in the image.
    folder = "" if options.image else options.workdir
    return _choice_of_file(Path(folder) / script, may_be_away=bool(options.image) or script not in words)


def _choice_of_file(file: Path, *, may_be_away: bool) -> LauncherChoice:
    try:
        is_there = file.is_file()
        source = _read(file)
    except OSError as error:
        raise InvalidInput(f"{file} cannot be read: {error.strerror}; name its launcher with --launcher") from error
    if is_there:
        return launcher_of_script(source) or LauncherChoice("plain", "it cannot be read as Python", is_unread=True)
    if may_be_away:
        return LauncherChoice("plain", "it is not here to be read", is_unread=True)
    raise InvalidInput(f"{file}: {_absence(file)}; if it lies elsewhere, say how it runs with --launcher")


def _read(file: Path) -> bytes:
    """Return the beginning of a script, nearly always the whole; empty where it is no file."""
    if not file.is_file():
        return b""
    with file.open("rb") as opened:
        return opened.read(MOST_SCRIPT_BYTES)


def _begins_again(script: str, shown: str, options: Program) -> str:
    """Return a warning where the script of an elastic job says nothing of checkpoints."""
    file = Path(options.workdir) / script
    try:
        source = _read(file).lower()
    except OSError:
        return ""
    if not source or any(word in source for word in _OF_CHECKPOINTS):
        return ""
    return f"warning: each resize starts {shown} anew, and it says nothing of checkpoints: it would begin again"


def _absence(file: Path) -> str:
    return "there is no such file here" + (f" (did you mean {close}?)" if (close := close_file(file)) else "")


def _sizes(options: Program) -> JobSizes:
    """Return the numbers of workers with which a program runs; raises InvalidInput."""
    given = None if options.workers is None else parse_sizes(str(options.workers), "--workers")
    if not options.deepspeed:
        return JobSizes.of([1]) if given is None else given
    # Only where it is asked for: it is about one library.
    from voda.programs.deepspeed import sizes_of_config

    sizes = sizes_of_config(Path(options.deepspeed), options.gpus_per_worker)
    if given is None:
        return sizes
    if not (both := JobSizes.of(size for size in given if size in sizes)).ranges:
        raise InvalidInput(
            f"--workers: expected some of the sizes of {options.deepspeed}, {sizes}, got {str(options.workers)[:40]}"
        )
    return both


def _env_files(options: Program) -> tuple[tuple[str, str], ...]:
    if options.env_from_file and options.image:
        raise InvalidInput(
            "--env-from-file names a file of this machine: on Kubernetes keep the secret in a Secret, and name it by"
            " valueFrom.secretKeyRef in a manifest (voda init writes one)"
        )
    return tuple((name, os.path.abspath(os.path.expanduser(path))) for name, path in options.env_from_file.items())


def _unusable_file(files: Sequence[tuple[str, str]]) -> str:
    """Return a warning of the first file of a variable that the job's process would refuse, as it is here."""
    for name, path in files:
        try:
            found = os.lstat(path)
        except OSError:
            problem = "is not here, or cannot be looked at"
        else:
            if stat.S_ISREG(found.st_mode) and not found.st_mode & 0o077:
                continue
            problem = "may be read by others: chmod 600 it" if stat.S_ISREG(found.st_mode) else "is no regular file"
        return (
            f"warning: the file {path} of the variable {name} {problem}; where it runs, the job fails with such a file"
        )
    return ""


def _folder(options: Program) -> str:
    if not options.workdir:
        return ""
    if not options.image:
        return str(Path(options.workdir).absolute())
    if not options.workdir.startswith("/"):
        raise InvalidInput(
            f"--workdir: expected a folder of the image, such as /workspace, got {options.workdir[:60]!r}"
        )
    return options.workdir


def _name_of(program: str) -> str:
    """Return a name that Kubernetes takes: Train_Model.py is train-model, 01-fit.sh is job-01-fit."""
    path = Path(program)
    stem = path.parent.name if path.stem == "__main__" and path.parent.name else path.stem
    plain = re.sub(r"[^a-z0-9]+", "-", stem.lower())[:_LONGEST_DEFAULT_NAME].strip("-")
    if not plain:
        return "job"
    return plain if plain[0].isalpha() else f"job-{plain}"
