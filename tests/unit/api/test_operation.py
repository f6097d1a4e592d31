"""An operation is declared on its handler alone, which gives it its name and summary."""

import asyncio
from typing import cast

from aiohttp import web

from voda.api.operation import ANONYMOUS, Operation, Routes
from voda.application.backend import Backend
from voda.auth.callers import Caller


class ThingRoutes(Routes):
    """The operations on things."""

    tag = "Things"

    @Operation("GET", "/things")
    async def list_things(self, _request: web.Request, _caller: Caller) -> web.StreamResponse:
        """List all things.

        More about it.
        """
        return web.Response(text=f"{self.backend} of {type(self).__name__}")

    @Operation("DELETE", "/things/{thing}")
    async def delete_thing(self, _request: web.Request, _caller: Caller) -> web.StreamResponse:
        """Delete a thing."""
        return web.Response(status=204)

    async def no_operation(self) -> None:
        """Do nothing."""


def test_operations_have_the_names_and_summaries_of_their_handlers_in_their_order() -> None:
    operations = ThingRoutes(cast("Backend", "backend")).operations()
    assert [(one.method, one.path, one.name, one.summary, one.tag) for one in operations] == [
        ("GET", "/things", "listThings", "List all things", "Things"),
        ("DELETE", "/things/{thing}", "deleteThing", "Delete a thing", "Things"),
    ]


def test_handler_is_bound_to_its_routes() -> None:
    first, _ = ThingRoutes(cast("Backend", "backend")).operations()
    response = asyncio.run(_handled(first))
    assert response.text == "backend of ThingRoutes"


async def _handled(operation: Operation) -> web.Response:
    assert operation.handler is not None
    response = await operation.handler(cast("web.Request", None), ANONYMOUS)
    assert isinstance(response, web.Response)
    return response
