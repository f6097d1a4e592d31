"""`voda init`: writes the manifest of a program to a file, to be changed and submitted."""

from pathlib import Path
from typing import Annotated

import click

from voda.cli.command_group import command
from voda.cli.parameters import Argument, Option
from voda.cli.program import ProgramCommand, ProgramOptions, words_after_dashes
from voda.domain.errors import InvalidInput


@command("init", cls=ProgramCommand)
def init(  # noqa: PLR0913 - a command's options are its parameters
    ctx: click.Context,
    options: ProgramOptions,
    script: Annotated[str, Argument(metavar="SCRIPT | -- PROGRAM...", help="A Python program.")] = "",
    name: Annotated[str, Option("--name", help="Name of the job; by default that of the program.")] = "",
    out: Annotated[Path | None, Option("--out", metavar="FILE", help="File to write; by default NAME.yaml.")] = None,
    force: Annotated[bool, Option("--force", help="Replace the file if it is there.")] = False,
) -> None:
    """Write the manifest of a program to a file, as voda submit would make it.

    It begins in the present folder, from wherever the file is submitted.

    \b
    Examples:
      voda init train.py
      voda init --workers 1-4 --out job.yaml -- python train.py --lr 0.1
    """
    from voda.cli.program import kept_document, manifest_text, program_document
    from voda.cli.render.terminal import note, plain

    words = words_after_dashes(ctx)
    if words and script:
        raise InvalidInput(f"{script} stands before --, and a program after it: give one of them")
    if not words and not script:
        raise InvalidInput("no program: voda init train.py, or voda init -- python train.py --lr 0.1")
    made = program_document(words or ("python", script), options, name=name)
    text = manifest_text(kept_document(made, options).manifest, has_image=bool(options.image))
    file = out or Path(f"{made.document.manifest['metadata']['name']}.yaml")
    try:
        with file.open("w" if force else "x", encoding="utf-8") as opened:
            opened.write(text)
    except FileExistsError:
        raise InvalidInput(f"{file} is there already: --force replaces it, --out names another file") from None
    for line in made.notes(is_submitted=False):
        note(line)
    print(plain(f"{file} written; voda submit {file}"))
