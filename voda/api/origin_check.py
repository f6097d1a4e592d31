"""Guards requests without a token against web pages of other sites (CSRF and DNS rebinding).

Rule: without a token a browser is answered only for pages of our own, under a name that nobody else can claim; at the
Unix socket too, which a browser reaches once somebody forwards a port to it. To a browser, a page whose name was made
to point here (DNS rebinding) is of the same origin: only its Host shows it.
"""

from ipaddress import ip_address
from typing import Final
from urllib.parse import SplitResult, urlsplit

from aiohttp import hdrs, web

from voda.domain.errors import NotAllowed

LISTEN_HOST: Final = web.AppKey("LISTENS_AT", str)


def refuse_foreign_origin(request: web.Request) -> None:
    """Refuse, with NotAllowed, a request that a page of another site may have made a browser send."""
    # Every browser sends a Host.
    host = request.headers.get(hdrs.HOST)
    if host is not None and not _is_ours(_split(f"//{host}").hostname or "", request.app.get(LISTEN_HOST, "")):
        raise NotAllowed(
            f"without a token voda does not answer under the name {host[:200]!r}, which others could claim: use its"
            " address, or a name without dots"
        )
    origin = request.headers.get(hdrs.ORIGIN)
    if origin is not None and _split(origin).netloc != host:
        raise NotAllowed(
            f"a web page of {origin[:200]!r} may not do this: without a token voda answers only its own pages"
        )


def _is_ours(name: str, listens_at: str) -> bool:
    """Return whether nobody on the internet can make the name point to this machine."""
    try:
        ip_address(name)
    except ValueError:
        return bool(name) and ("." not in name or name == listens_at.lower())
    return True


def _split(url: str) -> SplitResult:
    try:
        return urlsplit(url)
    except ValueError:
        return urlsplit("")
