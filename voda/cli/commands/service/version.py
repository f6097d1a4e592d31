"""`voda version`: which version this command line is, and which the server."""

from typing import TYPE_CHECKING

from voda import __version__
from voda.cli.command_group import command
from voda.cli.options import Output, OutputOption, ServerOptions
from voda.domain.errors import NotFound

if TYPE_CHECKING:
    from voda.cli.http.client import Client


@command("version")
def version(where: ServerOptions, output: OutputOption = "table") -> None:
    """Show the versions of this command line and of the server.

    Where a server was named and does not answer, the exit status says so.

    \b
    Examples:
      voda version
      voda version -o json
    """
    from voda.cli.http.client import call_server
    from voda.cli.render.terminal import note

    if output in ("table", "wide"):
        # Also where no server answers.
        print(f"client  {__version__}", flush=True)
    try:
        call_server(where, lambda client: _show(client, output))
    except NotFound as error:
        if where.server:
            raise
        if output in ("json", "yaml"):
            _print(b"null", output)
        note(str(error))


def _show(client: "Client", output: Output) -> None:
    import msgspec

    from voda.cli.http.client import decode
    from voda.cli.render.terminal import plain
    from voda.wire.base import ServiceView

    served = decode(client.get(""), ServiceView)
    if output in ("table", "wide"):
        print(plain(f"server  {served.version}  {client.target.url}"), flush=True)
    else:
        _print(msgspec.json.encode({"version": served.version, "url": client.target.url}), output)


def _print(server: bytes, output: Output) -> None:
    from voda.cli.render.terminal import print_answer

    print_answer(b'{"client":{"version":"%b"},"server":%b}' % (__version__.encode(), server), output, [__version__])
