"""`voda dashboard`: the page of the cluster, in a browser."""

from typing import Annotated

from voda.cli.command_group import command
from voda.cli.options import ServerOptions
from voda.cli.parameters import Option


@command("dashboard")
def dashboard(
    where: ServerOptions,
    is_opened: Annotated[bool, Option("--open/--no-open", help="Open it in a browser, where there is one.")] = True,
) -> None:
    """Open the page: who has which GPU, what waits and why, now and at any moment.

    The printed address logs you in once, within a minute; the session ends after
    12 hours. Of a Kubernetes cluster the page is reached through kubectl, until
    you end the command with Ctrl-C.

    \b
    Examples:
      voda dashboard
      voda dashboard --no-open
      kubectl voda dashboard
    """
    import time

    from voda.cli.http.client import Client, HttpCall, decode
    from voda.cli.http.port_forward import reached
    from voda.cli.render.terminal import note
    from voda.wire.logins import LoginView

    with reached(where) as there:
        client = Client(there, lost=note)
        login = decode(client.ask(HttpCall(method="POST", path="/logins")).body, LoginView)
        is_forwarded = there is not where
        url = _page(client.target.url if is_forwarded or not login.url else login.url, login.code)
        print(url, flush=True)
        if is_opened and not _open(url):
            note("there is no browser here: open the address in one of this machine, or forward the port to yours")
        if is_forwarded:
            note("kubectl forwards the port until you end this with Ctrl-C")
            while True:
                time.sleep(3600)


def _page(url: str, code: str) -> str:
    from voda.domain.errors import InvalidInput

    if not url.startswith("http"):
        raise InvalidInput(
            f"this voda is asked at {url} alone, which no browser opens: start it with a port that is free (--port)"
        )
    return f"{url.rstrip('/')}/" + (f"#login={code}" if code else "")


def _open(url: str) -> bool:
    """Open a browser, and return whether there is one; one of the terminal runs no scripts."""
    import webbrowser

    from voda import config

    return config.has_screen() and webbrowser.open(url)
