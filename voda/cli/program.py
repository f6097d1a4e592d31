"""A program that is submitted without a manifest: its options, and the manifest made of them.

Rule: how the program will be started, and why, is said in one line before anything is sent.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal

import typer

from voda.cli.options import PlainCommand, seconds_of
from voda.domain.errors import InvalidInput

if TYPE_CHECKING:
    from voda.cli.manifests import Document
    from voda.manifests.launchers import LauncherChoice

_WORKERS: Final = re.compile(r"([0-9]{1,6})(?:-([0-9]{1,6}))?")
_MOST_WORKERS: Final = 4_096
_MOST_GPUS: Final = 1_024
_LONGEST_DEFAULT_NAME: Final = 40
_MANIFEST_SUFFIXES: Final = (".yaml", ".yml", ".json")
_PROGRAM: Final = "voda.program"


class ProgramCommand(PlainCommand):
    """A command that takes a program with its arguments after `--`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if "--" in args:
            at = args.index("--")
            ctx.meta[_PROGRAM] = tuple(args[at + 1 :])
            args = args[:at]
        return super().parse_args(ctx, args)


def words_after_dashes(ctx: typer.Context) -> tuple[str, ...] | None:
    """Return what stands after `--`; None where there is no `--`."""
    words: tuple[str, ...] | None = ctx.meta.get(_PROGRAM)
    return words


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramOptions:
    PANEL: ClassVar = "Program after --"

    workers: Annotated[str, typer.Option("--workers", metavar="N|MIN-MAX", help="Workers, such as 2 or 1-4.")] = ""
    gpus: Annotated[
        int | None,
        typer.Option("--gpus-per-worker", metavar="N", min=0, max=_MOST_GPUS, help="By default 1; a process for each."),
    ] = None
    env: Annotated[
        list[str] | None, typer.Option("--env", metavar="NAME=VALUE", help="A variable; may be given several times.")
    ] = None
    env_file: Annotated[
        list[Path] | None, typer.Option("--env-file", metavar="FILE", help="Lines of NAME=VALUE; --env goes before.")
    ] = None
    export: Annotated[
        list[str] | None, typer.Option("--export", metavar="NAME[,NAME]", help="Variables with their values here.")
    ] = None
    env_from_file: Annotated[
        list[str] | None,
        typer.Option("--env-from-file", metavar="NAME=PATH", help="A secret: each start reads it from your file."),
    ] = None
    workdir: Annotated[
        str, typer.Option("--workdir", metavar="FOLDER", help="Where it begins; by default here, on one machine.")
    ] = ""
    time: Annotated[str, typer.Option("--time", metavar="4h", help="It fails if it runs longer: 90m, 4h, 1d12h.")] = ""
    image: Annotated[str, typer.Option("--image", metavar="IMAGE", help="Container image; Kubernetes needs one.")] = ""
    launcher: Annotated[
        Literal["mpirun", "torchrun", "plain"] | None,
        typer.Option(metavar="mpirun|torchrun|plain", help="By default what the program imports decides."),
    ] = None

    def refuse_any(self, *, is_printed: bool) -> None:
        """Raise InvalidInput on the first option that is given, --print among them: they are not for manifests."""
        given = ["print"] if is_printed else []
        given += [field.name for field in fields(self) if getattr(self, field.name) not in ("", None, [])]
        if given:
            option = given[0].replace("gpus", "gpus-per-worker").replace("_", "-")
            raise InvalidInput(f"--{option} is for a program after --: a manifest says it itself")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramDocument:
    document: "Document"
    note: str
    """How it is started, and why, as one line."""


def program_document(words: Sequence[str], options: ProgramOptions, *, name: str) -> ProgramDocument:
    """Return the manifest of a program; `name` empty: that of its script.

    Raises:
        InvalidInput: an option cannot be used, or there is no such script.
    """
    from voda import config
    from voda.cli.manifests import Document
    from voda.cli.variables import variables
    from voda.manifests.launchers import script_in_command
    from voda.manifests.program_manifest import ProgramJob, program_manifest
    from voda.manifests.yaml_text import refuse_odd_values

    words = _runnable(words)
    refuse_odd_values([*words, options.workdir])
    script = script_in_command(words)
    least, most = _bounds(options.workers)
    choice = _choice(words, script, options)
    shown = script or words[0]
    if choice.launcher == "plain" and most > 1 and not options.launcher:
        raise InvalidInput(
            f"{shown} would run as a plain program, which has one worker, not {most}, because {choice.reason};"
            " --launcher mpirun or torchrun starts more"
        )
    job = ProgramJob(
        name=name or _name_of(shown),
        words=tuple(words),
        launcher=choice.launcher,
        least=least,
        most=most,
        gpus_per_worker=1 if options.gpus is None else options.gpus,
        env=variables(options.export or (), options.env_file or (), options.env or (), config.environment()),
        env_files=_env_files(options),
        working_dir=_folder(options),
        time_limit_s=seconds_of(options.time, option="--time") if options.time else 0,
        image=options.image,
    )
    document = Document(source=shown, manifest=program_manifest(job))
    how = "as a plain program" if choice.launcher == "plain" else f"with {choice.launcher}"
    hint = "" if options.launcher else "; --launcher chooses another"
    return ProgramDocument(document=document, note=f"runs {shown} {how}, because {choice.reason}{hint}")


def manifest_text(manifest: dict[str, Any]) -> str:
    """Return a program's manifest as YAML for a file.

    Raises:
        InvalidInput: `voda submit` would refuse it.
    """
    from voda.manifests import text
    from voda.manifests.parse import parse
    from voda.manifests.program_manifest import manifest_yaml

    written = manifest_yaml(manifest)
    parse(text.read(written.encode()))
    return written


def _runnable(words: Sequence[str]) -> list[str]:
    """Return the command; a script without a folder before it is run by Python, as it is not on the PATH."""
    if not words or not words[0]:
        raise InvalidInput("no program after --: expected one, such as voda submit -- python train.py")
    if words[0].lower().endswith(_MANIFEST_SUFFIXES):
        raise InvalidInput(f"{words[0]} is a manifest, not a program: voda submit {words[0]}")
    is_bare_script = words[0].endswith(".py") and "/" not in words[0] and not words[0].startswith("-")
    return ["python", *words] if is_bare_script else [*words]


def _choice(words: Sequence[str], script: str, options: ProgramOptions) -> "LauncherChoice":
    from voda.manifests.launchers import LauncherChoice, launcher_in_command

    if options.launcher:
        return LauncherChoice(options.launcher, "--launcher says so")
    if (own := launcher_in_command(words)) is not None:
        return LauncherChoice(own, f"the command begins with {words[0]}")
    if not script:
        return LauncherChoice("plain", "its command names no Python file")
    # A module may be installed, and a script may lie in the image.
    folder = "" if options.image else options.workdir
    return _choice_of_file(Path(folder) / script, may_be_away=bool(options.image) or script not in words)


def _choice_of_file(file: Path, *, may_be_away: bool) -> "LauncherChoice":
    from voda.manifests.launchers import MOST_SCRIPT_BYTES, LauncherChoice, launcher_of_script

    try:
        is_there = file.is_file()
        source = b""
        if is_there:
            with file.open("rb") as opened:
                source = opened.read(MOST_SCRIPT_BYTES)
    except OSError as error:
        raise InvalidInput(f"{file} cannot be read: {error.strerror}; name its launcher with --launcher") from error
    if is_there:
        return launcher_of_script(source) or LauncherChoice("plain", "it cannot be read as Python")
    if may_be_away:
        return LauncherChoice("plain", "it is not here to be read")
    raise InvalidInput(f"{file}: there is no such file here; if it lies elsewhere, say how it runs with --launcher")


def _bounds(text: str) -> tuple[int, int]:
    if not text:
        return 1, 1
    match = _WORKERS.fullmatch(text)
    least, most = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
    if not 1 <= least <= most <= _MOST_WORKERS:
        raise InvalidInput(f"--workers: expected 1 to {_MOST_WORKERS:,}, such as 2 or 1-4, got {text[:40]!r}")
    return least, most


def _env_files(options: ProgramOptions) -> tuple[tuple[str, str], ...]:
    from voda.cli.variables import files_of_variables

    if options.env_from_file and options.image:
        raise InvalidInput(
            "--env-from-file names a file of this machine: on Kubernetes keep the secret in a Secret, and name it by"
            " valueFrom.secretKeyRef in a manifest (voda init writes one)"
        )
    return files_of_variables(options.env_from_file or ())


def _folder(options: ProgramOptions) -> str:
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
