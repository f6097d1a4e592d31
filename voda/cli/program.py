"""A program that is submitted without a manifest: its options, and the manifest made of them.

Rule: how the program will be started, and why, is said in one line before anything is sent.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal

import click

from voda.cli.command_group import HandWrapped
from voda.cli.parameters import Option
from voda.domain.errors import InvalidInput

if TYPE_CHECKING:
    from voda.cli.manifests import Document
    from voda.programs.program import Program

_MOST_GPUS: Final = 1_024
_PROGRAM: Final = "voda.program"


class ProgramCommand(HandWrapped):
    """A command that takes a program with its arguments after `--`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if "--" in args:
            at = args.index("--")
            ctx.meta[_PROGRAM] = tuple(args[at + 1 :])
            args = args[:at]
        return super().parse_args(ctx, args)


def words_after_dashes(ctx: click.Context) -> tuple[str, ...] | None:
    """Return what stands after `--`; None where there is no `--`."""
    words: tuple[str, ...] | None = ctx.meta.get(_PROGRAM)
    return words


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramOptions:
    PANEL: ClassVar = "Program after --"

    workers: Annotated[
        str | None,
        Option("--workers", metavar="SIZES", help="Workers: 2, 1-4, 2-16:2 (steps of 2) or 1,2,4,8.", default_text="1"),
    ] = None
    gpus: Annotated[
        int | None,
        Option("--gpus-per-worker", metavar="N", min=0, max=_MOST_GPUS, help="A process for each.", default_text="1"),
    ] = None
    gpu_milli: Annotated[
        str,
        Option("--gpu-milli", metavar="N", help="A part of one GPU: 10, 20, ... to 990 thousandths of its compute."),
    ] = ""
    gpu_memory: Annotated[
        str, Option("--gpu-memory", metavar="4Gi", help="And of its memory; without it, as much as others leave.")
    ] = ""
    memory: Annotated[str, Option("--memory", metavar="8Gi", help="A worker may have; it is killed beyond it.")] = ""
    cpus: Annotated[str, Option("--cpus", metavar="4", help="CPUs that a worker may use, such as 4 or 0.5.")] = ""
    retries: Annotated[
        int | None, Option("--retries", min=0, metavar="N", help="Tries after a failure.", default_text="6")
    ] = None
    nice: Annotated[
        int | None,
        Option("--nice", min=0, max=19, metavar="N", help="How much it gives way for CPUs here.", default_text="5"),
    ] = None
    deepspeed: Annotated[
        Path | None,
        Option(
            "--deepspeed",
            metavar="FILE",
            help="Numbers of workers: those that fit the elastic section of this DeepSpeed JSON; for manifests, too.",
        ),
    ] = None
    env: Annotated[
        list[str] | None, Option("--env", metavar="NAME=VALUE", help="A variable; may be given several times.")
    ] = None
    env_file: Annotated[
        list[Path] | None, Option("--env-file", metavar="FILE", help="Lines of NAME=VALUE; --env goes before.")
    ] = None
    export: Annotated[
        list[str] | None, Option("--export", metavar="NAME[,NAME]", help="Variables with their values here.")
    ] = None
    env_from_file: Annotated[
        list[str] | None,
        Option("--env-from-file", metavar="NAME=PATH", help="A secret: each start reads it from your file."),
    ] = None
    workdir: Annotated[
        str, Option("--workdir", metavar="FOLDER", help="Where it begins; by default here, on one machine.")
    ] = ""
    live: Annotated[
        bool,
        Option("--live", help="Each start runs the script as it is then, not as it was at the submit; on one machine."),
    ] = False
    time: Annotated[str, Option("--time", metavar="4h", help="It fails if it runs longer: 90m, 4h, 1d12h.")] = ""
    image: Annotated[str, Option("--image", metavar="IMAGE", help="Container image; Kubernetes needs one.")] = ""
    launcher: Annotated[
        Literal["mpirun", "torchrun", "plain"] | None,
        Option(metavar="mpirun|torchrun|plain", help="By default what the program imports decides."),
    ] = None

    def refuse_any(self, *, is_printed: bool) -> None:
        """Raise InvalidInput on the first option that is given and not for manifests, --print among them."""
        given = ["print"] if is_printed else []
        options = [field for field in fields(self) if field.name != "deepspeed"]
        given += [field.name for field in options if getattr(self, field.name) != field.default]
        if given:
            option = ("gpus-per-worker" if given[0] == "gpus" else given[0]).replace("_", "-")
            raise InvalidInput(f"--{option} is for a program after --: a manifest says it itself")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramDocument:
    document: "Document"
    note: str
    """How it is started, and why, as one line."""
    warning: str
    is_guessed: bool
    runs_with: str
    """As those of its ProgramStart."""
    not_kept: str = ""
    """Why its code was not kept, as one line; empty: it was, or was not to be."""
    removed: str = ""
    """What newer libraries refuse of it, as one line; empty: nothing."""
    foreign: str = ""
    """Why another machine would run it with another Python than the user may think, a sentence; empty: it would not."""

    def notes(self, *, is_submitted: bool) -> Sequence[str]:
        """Return what the user is told: at a submit only what the user did not say, and what may go wrong."""
        runs_with = f"runs with {self.runs_with}" if self.runs_with else ""
        said = [self.note] if self.is_guessed or not is_submitted else []
        return [*said, *filter(None, [runs_with, self.warning, self.not_kept, self.removed])]


def program_document(  # noqa: PLR0913 - each may be given
    words: Sequence[str],
    options: ProgramOptions,
    *,
    name: str,
    runs_here: bool = True,
    is_kept: bool = False,
    gpu_resource: str = "",
) -> ProgramDocument:
    """Return the manifest of a program; `name` empty: that of its script. Where it runs here its code `is_kept`.

    A program that runs here, without an image, has the caller's PATH unless the options give one. Its pods ask for
    `gpu_resource`; empty: NVIDIA's.

    Raises:
        InvalidInput: an option cannot be used, or there is no such script.
    """
    from voda import config
    from voda.cli.manifests import Document
    from voda.cli.variables import variables
    from voda.manifests.odd_values import refuse_odd_values
    from voda.programs.deepspeed import REMOVED
    from voda.programs.kept_code import with_kept_code
    from voda.programs.launchers import is_python
    from voda.programs.program import start_of
    from voda.programs.program_manifest import NVIDIA, program_manifest

    refuse_odd_values([*words, options.workdir])
    caller = config.environment()
    env = dict(variables(options.export or (), options.env_file or (), options.env or (), caller))
    start = start_of(
        _program(words, options, name, env),
        caller if runs_here and not options.image and "PATH" not in env else None,
    )
    job, not_kept = with_kept_code(start.job, config.code_folder()) if is_kept and runs_here else (start.job, "")
    manifest = program_manifest(replace(job, gpu_resource=gpu_resource or NVIDIA))
    refuse_odd_values(manifest)
    document = Document(source=start.program, manifest=manifest)
    word = start.job.words[0]
    is_foreign = not runs_here and not options.image and "PATH" not in env and "/" not in word
    return ProgramDocument(
        document=document,
        note=start.note,
        warning=start.warning,
        not_kept=not_kept,
        removed="" if options.deepspeed is None else REMOVED,
        is_guessed=start.is_guessed,
        runs_with=start.runs_with if runs_here and not options.image else "",
        foreign=_foreign(word, start.runs_with) if is_foreign and is_python(start.runs_with) else "",
    )


def _program(words: Sequence[str], options: ProgramOptions, name: str, env: Mapping[str, str]) -> "Program":
    """Return a program as its options say it; raises InvalidInput."""
    from voda.cli.variables import files_of_variables
    from voda.programs.amounts import gpu_milli_of
    from voda.programs.program import Program

    return Program(
        tuple(words),
        name=name,
        workers=options.workers,
        deepspeed="" if options.deepspeed is None else str(options.deepspeed),
        gpus_per_worker=1 if options.gpus is None else options.gpus,
        gpu_milli=gpu_milli_of(options.gpu_milli) if options.gpu_milli else 0,
        gpu_memory=options.gpu_memory,
        memory=options.memory,
        cpus=options.cpus,
        retries=options.retries,
        nice=options.nice,
        env=env,
        env_from_file=dict(files_of_variables(options.env_from_file or ())),
        workdir=options.workdir,
        time=options.time,
        image=options.image,
        launcher=options.launcher,
    )


def _foreign(word: str, python: str) -> str:
    return (
        f"{word} would be that of the machine of this voda, and not {python}, which is yours here: add --env PATH=...,"
        " as it is there, or name its Python by its whole path (voda submit -- /path/to/bin/python ...)"
    )


def kept_document(made: ProgramDocument, options: ProgramOptions) -> "Document":
    """Return the manifest for a file, which begins where it was made, wherever it is submitted; an image has folders
    of its own.
    """
    from voda.cli.manifests import with_working_dir

    return made.document if options.image else with_working_dir(made.document, str(Path.cwd()))


_FOR_KUBECTL = """\
# For `kubectl apply -f FILE` or `voda submit FILE`. voda starts it{service}.
"""
_SERVICE = """, and makes its Service {subdomain}.
# The job's name is in it several times: for another one print it again, with --name"""
_WITH_CLAIMS = """\
# For `kubectl apply -f FILE` alone, which makes the ResourceClaimTemplate too. voda starts the job{service}.
"""
_FOR_SUBMIT = """\
# For `voda submit FILE` alone, which makes the jobs of --array.
"""


def manifest_text(manifest: dict[str, Any], *, has_image: bool) -> str:
    """Return a program's manifest as YAML for a file; with an image, complete for kubectl where that can be.

    Raises:
        InvalidInput: `voda submit` would refuse it.
    """
    from voda.cluster.kubernetes.kinds.kubectl_manifest import kubectl_manifests
    from voda.manifests import text
    from voda.manifests.parse import parse
    from voda.manifests.yaml_writer import manifest_yaml

    written = manifest_yaml(manifest)
    spec = parse(text.read(written.encode())).spec
    if not has_image:
        return written
    if "voda.dev/array" in manifest["metadata"]["annotations"]:
        return _FOR_SUBMIT + written
    *claims, complete = kubectl_manifests(spec)
    subdomain = complete["spec"].get("template", {}).get("spec", {}).get("subdomain", "")
    service = _SERVICE.format(subdomain=subdomain) if subdomain else ""
    head = _WITH_CLAIMS if claims else _FOR_KUBECTL
    return head.format(service=service) + "---\n".join(map(manifest_yaml, (*claims, complete)))
