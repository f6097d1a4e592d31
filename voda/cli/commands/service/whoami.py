"""`voda whoami`: whom the server takes you for, and how it knows."""

from typing import TYPE_CHECKING, Final

from voda.cli.command_group import command
from voda.cli.options import OutputOption, ServerOptions

if TYPE_CHECKING:
    from voda.auth.callers import CallerView

_HOW: Final = {
    "socket": "by the account of this process (socket)",
    "token": "by the token that was sent",
    "session": "by the session of a login",
    "no tokens": "not at all: it runs without tokens, and everybody is admin",
}


@command("whoami")
def whoami(where: ServerOptions, output: OutputOption = "table") -> None:
    """Show whom the server takes you for, what you may do there, and how it knows.

    \b
    Examples:
      voda whoami
      voda whoami -o json
    """
    import msgspec

    from voda.auth.callers import CallerView
    from voda.cli.http.client import call_server, decode
    from voda.cli.render.terminal import print_answer

    body, target = call_server(where, lambda client: (client.get("/whoami"), client.target))
    caller, server = decode(body, CallerView), {"server": target.url, "server_from": target.source}
    answer = msgspec.json.encode(msgspec.structs.asdict(caller) | server)
    print_answer(answer, output, [caller.user or caller.job_id], lambda: _text(caller, server))


def _text(caller: "CallerView", server: dict[str, str]) -> str:
    who = f"job     {caller.job_id}" if caller.role == "job" else f"user    {caller.user}"
    warning = [f"warning {caller.warning}"] if caller.warning else []
    return "\n".join(
        (
            who,
            f"role    {caller.role}",
            f"known   {_HOW[caller.found_by]}",
            f"server  {server['server']} (from {server['server_from']})",
            *warning,
        )
    )
