"""The page: its files, and logins to it.

Rule: the page may run its own files alone, and talk to this server alone.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import Final, NamedTuple

from aiohttp import hdrs, web

from voda.api.admission import CallerLimits
from voda.api.operation import PUBLIC, Operation, RequestBody, Response, Routes
from voda.api.requests import body_of, json_response
from voda.auth.callers import Caller
from voda.auth.tokens import Authenticator
from voda.domain.errors import NotFound
from voda.wire.base import instant
from voda.wire.logins import LoginCode, LoginView, SessionView

_HTML: Final = "text/html"
_TYPES: Final = {".html": _HTML, ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
_HEADERS: Final = {
    "Cache-Control": "no-cache",
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:;"
        " base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


class _PageFile(NamedTuple):
    content: bytes
    media_type: str
    etag: str


@dataclass
class DashboardRoutes(Routes):
    """The operations of the page."""

    tag = "Dashboard"

    access: Authenticator
    limits: CallerLimits
    page_url: Callable[[], str]

    @Operation("GET", "/", roles=PUBLIC, answers=[Response(media_type=_HTML)])
    async def get_dashboard(self, request: web.Request, _caller: Caller) -> web.StreamResponse:
        """Look at the cluster in a browser."""
        return _answer(request, _files()["index.html"])

    @Operation(
        "GET",
        "/{file:[a-z-]{1,40}[.](?:js|css|svg)}",
        roles=PUBLIC,
        path_parameters={"file": "Of the page."},
        answers=[Response(media_type="text/javascript"), Response(status=304, media_type="")],
        problems=[404],
    )
    async def get_dashboard_file(self, request: web.Request, _caller: Caller) -> web.StreamResponse:
        """Get a file of the page."""
        name = request.match_info["file"]
        if (file := _files().get(name)) is None:
            raise NotFound(f"the page has no file {name[:80]!r}: / is the page")
        return _answer(request, file)

    @Operation(
        "POST",
        "/api/v1/logins",
        description="The code begins one session of 12 hours within a minute: `voda dashboard` opens the page with it.",
        answers=[Response(of=LoginView)],
    )
    async def create_login(self, _request: web.Request, caller: Caller) -> web.StreamResponse:
        """Get a login to the page for yourself."""
        if not self.access.has_tokens:
            return json_response(LoginView(url=self.page_url()))
        code, ends_at = self.access.login(caller)
        return json_response(LoginView(code=code, ends_at=instant(ends_at), url=self.page_url()))

    @Operation(
        "POST",
        "/api/v1/sessions",
        roles=PUBLIC,
        body=RequestBody(of=LoginCode),
        answers=[Response(of=SessionView)],
        problems=[401, 403, 422],
    )
    async def create_session(self, request: web.Request, _caller: Caller) -> web.StreamResponse:
        """Begin a session with a login."""
        login = await body_of(request, LoginCode, self.limits)
        token, claim = self.access.begin_session(login.code)
        return json_response(SessionView(token=token, user=claim.user, role=claim.role, ends_at=instant(claim.ends_at)))


def _answer(request: web.Request, file: _PageFile) -> web.Response:
    tag = f'"{file.etag}"'
    if request.headers.get(hdrs.IF_NONE_MATCH, "").removeprefix("W/") == tag:
        return web.Response(status=304, headers={hdrs.ETAG: tag})
    headers = {**_HEADERS, hdrs.ETAG: tag}
    response = web.Response(body=file.content, content_type=file.media_type, charset="utf-8", headers=headers)
    response.enable_compression()
    return response


@cache
def _files() -> Mapping[str, _PageFile]:
    """Return the page's files by name."""
    found = {}
    for file in files("voda").joinpath("dashboard", "static").iterdir():
        name = file.name
        if (media_type := _TYPES.get(name[name.rfind(".") :])) is not None:
            content = file.read_bytes()
            found[name] = _PageFile(content, media_type, sha256(content).hexdigest()[:16])
    return found
