"""`voda dashboard`: the page of the cluster, in a browser."""

from typing import TYPE_CHECKING, Annotated

from voda.cli.command_group import command
from voda.cli.options import ServerOptions
from voda.cli.parameters import Option

if TYPE_CHECKING:
    from pathlib import Path


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

    if not config.has_screen():
        return False
    return webbrowser.open(_leading_to(url).as_uri() if "#" in url else url)


def _leading_to(url: str) -> "Path":
    """Return a page that only its owner may read and that leads to the address.

    Everybody on the machine can read what a browser is started with, and the address logs in whoever is first. The page
    stays: nobody says when the browser has read it, and its login is good once and for a minute.
    """
    import html
    import os
    import tempfile
    from pathlib import Path

    # Browsers from snaps see no folder for temporary files, and of the home what is not hidden.
    folder = Path.home() if (Path.home() / "snap").is_dir() else Path(tempfile.gettempdir())
    page = folder / f"voda-dashboard-{os.getuid()}.html"
    # A new file, so that no other user's is filled.
    descriptor, name = tempfile.mkstemp(dir=folder, prefix=page.stem)
    with open(descriptor, "w", encoding="utf-8") as file:
        file.write(
            f'<!doctype html><meta http-equiv="refresh" content="0; url={html.escape(url)}"><title>voda</title>\n'
        )
    written = Path(name)
    try:
        # Takes the place of the one before.
        return written.rename(page)
    except OSError:
        return written.rename(written.with_suffix(".html"))
