"""The OpenAPI document, and a page to read and try it that needs nothing from elsewhere.

Rule: the page may run its own script alone, and talk to this server alone.
"""

import re
from base64 import b64encode
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import Final

import msgspec
from aiohttp import web

from voda.api.openapi import document
from voda.api.operation import OPERATIONS, PUBLIC, Operation, Response, Routes
from voda.api.requests import cached_response
from voda.auth.callers import Caller

_HTML: Final = "text/html"


class DocumentRoutes(Routes):
    """The operations that describe the others."""

    tag = "Service"

    def __init__(self) -> None:
        self._document = b""

    @Operation(
        "GET",
        "/openapi.json",
        roles=PUBLIC,
        headers={"If-None-Match": "Answer 304 if the document is still this one."},
        answers=[Response(), Response(status=304, media_type="")],
    )
    async def get_document(self, request: web.Request, _caller: Caller) -> web.StreamResponse:
        """Get this document."""
        if not self._document:
            self._document = msgspec.json.encode(document(request.app[OPERATIONS]))
        return cached_response(request, self._document, sha256(self._document).hexdigest()[:16])

    @Operation("GET", "/docs", roles=PUBLIC, answers=[Response(media_type=_HTML)])
    async def get_docs(self, _request: web.Request, _caller: Caller) -> web.StreamResponse:
        """Read and try this document in a browser."""
        page, policy = _page()
        headers = {"Content-Security-Policy": policy, "Referrer-Policy": "no-referrer", "X-Frame-Options": "DENY"}
        return web.Response(body=page, content_type=_HTML, charset="utf-8", headers=headers)


@cache
def _page() -> tuple[bytes, str]:
    """Return the page, and the policy that lets a browser run what is in it and nothing else."""
    page = files("voda.api").joinpath("page", "docs.html").read_bytes()
    (script,) = re.findall(rb"<script>(.*?)</script>", page, re.DOTALL)
    (style,) = re.findall(rb"<style>(.*?)</style>", page, re.DOTALL)
    policy = (
        f"default-src 'none'; script-src {_digest(script)}; style-src {_digest(style)}; connect-src 'self';"
        " base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    return page, policy


def _digest(content: bytes) -> str:
    return f"'sha256-{b64encode(sha256(content).digest()).decode()}'"
