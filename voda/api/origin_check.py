"""Pages from elsewhere, open in a browser that can reach us: without tokens nothing else would stop them.

Rule: a service without tokens heeds a browser only for pages of its own, under a name that nobody else can claim. A
page whose name was made to point here (DNS rebinding) counts as our own to the browser, and shows by its Host alone.
"""

from ipaddress import ip_address
from typing import Final
from urllib.parse import SplitResult, urlsplit

from aiohttp import hdrs, web

from voda.domain.errors import NotAllowed

LISTEN_HOST: Final = web.AppKey("LISTENS_AT", str)
"""Name or address that the server was told to listen at."""
_NOTHING: Final = urlsplit("")


def refuse_foreign_origin(request: web.Request) -> None:
    """Refuse what a page from elsewhere makes a browser ask.

    Raises:
        NotAllowed: it may be such a page.
    """
    # Only what is no browser says nothing of the host.
    host = request.headers.get(hdrs.HOST)
    if host is not None and not _is_ours(_split(f"//{host}").hostname or "", request.app.get(LISTEN_HOST, "")):
        raise NotAllowed(
            f"this service runs without tokens, and then is not to be asked as {host[:200]!r}, a name that others could"
            " claim: use its address, or a name without dots; or start it with tokens"
        )
    origin = request.headers.get(hdrs.ORIGIN)
    if origin is not None and _split(origin).netloc != host:
        raise NotAllowed(
            f"a web page of {origin[:200]!r} may not do this: this service runs without tokens, and then answers its"
            " own pages alone"
        )


def _is_ours(name: str, listens_at: str) -> bool:
    """Return whether nobody on the internet can make the name stand for this machine."""
    try:
        ip_address(name)
    except ValueError:
        return bool(name) and ("." not in name or name == listens_at.lower())
    return True


def _split(url: str) -> SplitResult:
    try:
        return urlsplit(url)
    except ValueError:
        return _NOTHING
