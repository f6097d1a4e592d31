"""`voda token`: tokens and roles of the voda of a data folder."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from voda.cli.command_group import CommandGroup, command
from voda.cli.parameters import Argument, Option
from voda.domain.errors import InvalidInput

if TYPE_CHECKING:
    from voda.auth.tokens import Authenticator, Token

_HELP = (
    "Let others use this machine's voda: tokens and roles in the data folder. A running voda applies changes at once."
)
app = CommandGroup("token", help=_HELP)
Home = Annotated[Path | None, Option("--home", metavar="FOLDER", help="Data folder; by default VODA_HOME.")]


@command("create")
def create(
    name: Annotated[str, Argument(help="The user.")],
    role: Annotated[
        Literal["admin", "user", "viewer", "scheduler"], Option("--role", help="What the user may do.")
    ] = "user",
    home: Home = None,
) -> None:
    """Create a token for a user and print it. This is the only time: voda keeps only its hash.

    \b
    Roles:
      user    submits, changes and deletes own jobs; reads all (default)
      viewer  reads everything except the output of jobs
      admin   may do everything

    \b
    Examples:
      voda token create ada
      voda token create grafana --role viewer
      VODA_TOKEN=$(voda token create ada) voda get --server https://gpu1:8470
    """
    from voda import config
    from voda.accounts import account_of
    from voda.cli.render.terminal import note

    print(_access(home, makes=True).add(name, role))
    folder = home or config.home_folder()
    note(f"for the voda of {folder}, over TCP")
    if role == "user" and _runs_jobs_as_users(folder) and account_of(name) is None:
        note(f"this machine has no account {name}: that voda refuses jobs which are submitted with this token")


@command("list")
def list_tokens(
    output: Annotated[
        Literal["table", "json", "name"],
        Option("--output", "-o", help="For people, for programs, or the names alone."),
    ] = "table",
    home: Home = None,
) -> None:
    """List the users with a token; the admin of this machine needs none and is not listed.

    \b
    Examples:
      voda token list
      voda token list -o json
    """
    import msgspec

    tokens = _access(home).list()
    if output == "name":
        for token in tokens:
            print(token.name)
    elif output == "json":
        rows = [{"name": token.name, "role": token.role, "created_at": token.created_at} for token in tokens]
        print(msgspec.json.format(msgspec.json.encode(rows), indent=2).decode())
    else:
        _show(tokens)


@command("revoke")
def revoke(name: Annotated[str, Argument(help="The user.")], home: Home = None) -> None:
    """Revoke the token of a user, at once. The user's jobs keep running.

    \b
    Example:
      voda token revoke ada
    """
    _access(home).remove(name)
    print(f"token of {name} revoked")


def _show(tokens: "Sequence[Token]") -> None:
    from rich.console import Console

    from voda.cli.render.tables import Column, table

    if not tokens:
        print("nobody has a token; create one with `voda token create NAME`")
        return
    console = Console(highlight=False, soft_wrap=True)
    columns = (Column(head="USER"), Column(head="ROLE"), Column(head="CREATED"))
    rows = [(token.name, token.role, f"{token.created_at.astimezone():%Y-%m-%d %H:%M}") for token in tokens]
    for line in table(columns, rows, width=None):
        console.print(line)


def _runs_jobs_as_users(folder: Path) -> bool:
    """Return whether the voda of the folder runs, and serves its users at a socket."""
    try:
        return bool(json.loads((folder / "server.json").read_text("utf-8"))["socket"])
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _access(home: Path | None, *, makes: bool = False) -> "Authenticator":
    """Return the access of the folder; only who makes a token makes the folder, too."""
    from voda import config
    from voda.app.home import Home as Folder
    from voda.auth.tokens import Authenticator, has_secret
    from voda.client.target import is_roots
    from voda.clock import SystemClock
    from voda.domain.errors import NotFound

    folder = home or config.home_folder()
    if home is None and is_roots(folder):
        raise InvalidInput(
            f"the voda that runs here is root's, at {config.MACHINE_SOCKET}, and needs no token of you; root alone has"
            f" its tokens: sudo voda token create NAME. For a voda of your own name its folder: --home {folder}"
        )
    if makes:
        Folder(folder).make()
    elif not has_secret(folder):
        # To look is not to leave secrets in whatever folder was named.
        raise NotFound(f"{folder} is not there: no voda has run with it; name another with --home")
    return Authenticator.open(folder, SystemClock())
