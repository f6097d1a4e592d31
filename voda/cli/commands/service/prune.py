"""`voda prune`: deletes the folders of ended jobs."""

from typing import TYPE_CHECKING, Annotated

import click

from voda.cli.command_group import command
from voda.cli.options import Output, OutputOption, ServerOptions
from voda.cli.parameters import Option

if TYPE_CHECKING:
    from voda.cli.http.client import Client
    from voda.wire.housekeeping import KeptFolderList, KeptFolderView


_EXIT_NOT_WANTED = 1


@command("prune")
def prune(  # noqa: PLR0913 - a command's options are its parameters
    where: ServerOptions,
    older_than: Annotated[
        float | None,
        Option(
            "--older-than", metavar="7d", help="Of jobs that ended longer ago than this.", is_span=True, needs_unit=True
        ),
    ] = None,
    keep_size: Annotated[
        int | None,
        Option(
            "--keep-size",
            metavar="5GB",
            help="The oldest of whoever takes the most, until the rest fits.",
            is_size=True,
        ),
    ] = None,
    user: Annotated[str, Option("--user", "-u", help="Only of this user's jobs.")] = "",
    dry_run: Annotated[bool, Option("--dry-run", help="Show what would go, delete nothing.")] = False,
    yes: Annotated[bool, Option("--yes", "-y", help="Do not ask.")] = False,
    output: OutputOption = "table",
) -> None:
    """Delete the folders of ended jobs: output, checkpoints, all that they left.

    Without --older-than and --keep-size, those that exceed the settings of their
    pool (voda settings --retention, --retention-size); voda deletes these by
    itself, but no job's that ended within a day because of its size. The log
    keeps what happened. Users delete their own jobs' folders, admins all.

    \b
    Examples:
      voda prune --older-than 7d
      voda prune --keep-size 5GB --user ada --dry-run
      voda prune --older-than 1d --yes -o json
    """
    from voda.cli.http.client import call_server

    params: dict[str, str | int | list[str]] = {"user": user} if user else {}
    if older_than is not None:
        params["older_than_s"] = str(older_than)
    if keep_size is not None:
        params["keep_bytes"] = keep_size
    call_server(where, lambda client: _prune(client, params, is_dry=dry_run, is_sure=yes, output=output))


def _prune(
    client: "Client", params: dict[str, str | int | list[str]], *, is_dry: bool, is_sure: bool, output: Output
) -> None:
    from voda.cli.http.client import decode
    from voda.cli.render.terminal import note
    from voda.text import counted, size
    from voda.wire.housekeeping import KeptFolderList

    body = client.get("/folders", params)
    kept = decode(body, KeptFolderList)
    goes = [one for one in kept.items if one.goes]
    if kept.note:
        note(kept.note)
    if is_dry:
        _show(kept, goes, output, body)
        return
    if not goes:
        _show(kept, goes, output, _encoded([]))
        return
    if not is_sure:
        _show(kept, goes, "table", body)
        _refuse_without_terminal()
        if not click.confirm(f"Delete {counted(len(goes), 'folder')}, {size(kept.goes_bytes)}?", err=True):
            note("nothing was deleted")
            raise click.exceptions.Exit(_EXIT_NOT_WANTED)
    _delete(client, goes, output)


def _refuse_without_terminal() -> None:
    import sys

    from voda.domain.errors import InvalidInput

    if not sys.stdin.isatty():
        raise InvalidInput(
            "nobody is here to be asked whether to delete them: give --yes, or --dry-run to see what would go"
        )


def _delete(client: "Client", goes: "list[KeptFolderView]", output: Output) -> None:
    from voda.cli.execution import progress_bar
    from voda.cli.http.client import HttpCall, decode, for_each, resource_path
    from voda.cli.render.terminal import print_answer
    from voda.text import counted, size
    from voda.wire.housekeeping import JobFolderView

    deleted: list[JobFolderView] = []

    def delete(job_id: str) -> None:
        path = resource_path("jobs", f"@{job_id}", "folder")
        answer = client.ask_repeatedly(HttpCall(method="DELETE", path=path))
        deleted.append(decode(answer.body, JobFolderView))
        progress(len(deleted), len(goes))

    try:
        with progress_bar("folders") as progress:
            for_each([one.job_id for one in goes], delete)
    finally:
        freed = sum(one.size_bytes for one in deleted)
        text = f"deleted {counted(len(deleted), 'folder')}, {size(freed)}"
        print_answer(_encoded(deleted), output, [one.job_id for one in deleted], lambda: text)


def _encoded(deleted: object) -> bytes:
    import msgspec

    return msgspec.json.encode(deleted)


def _show(kept: "KeptFolderList", goes: "list[KeptFolderView]", output: Output, body: bytes) -> None:
    from voda.cli.render.job_folders import folders_table
    from voda.cli.render.terminal import now, print_answer, show_lines

    if output not in ("table", "wide"):
        print_answer(body, output, [one.job_id for one in goes])
        return
    show_lines(lambda width: folders_table(kept, goes, now(), width=width))
