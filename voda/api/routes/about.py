"""Who is asked, and who asks."""

from collections.abc import Sequence
from typing import Final

from aiohttp import web

from voda import __version__
from voda.api.operation import READERS, Operation, Response
from voda.api.requests import json_response
from voda.api.schemas.service import ServiceView
from voda.application.backend import Backend
from voda.application.pools import pool_names
from voda.auth.callers import Caller

_TAG: Final = "Service"


def routes(backend: Backend) -> Sequence[Operation]:
    """Return the operations on the server itself."""

    async def get_page(_request: web.Request, _who: Caller) -> web.StreamResponse:
        names = tuple(pool_names(backend))
        return json_response(ServiceView(version=__version__, pools=names, position=backend.view.position))

    async def get_who(_request: web.Request, who: Caller) -> web.StreamResponse:
        return json_response(who)

    return [
        Operation(
            method="GET",
            path="/api/v1",
            handler=get_page,
            name="getPage",
            summary="Get the version, the pools, and how far the log is read",
            tag=_TAG,
            answers=[Response(of=ServiceView)],
        ),
        Operation(
            method="GET",
            path="/api/v1/whoami",
            handler=get_who,
            name="whoAmI",
            summary="Get whom the server takes you for",
            tag=_TAG,
            roles=READERS | {"job"},
            answers=[Response(of=Caller)],
        ),
    ]
