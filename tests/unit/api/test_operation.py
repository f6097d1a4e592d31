"""An operation is declared on its handler alone, which gives it its name and summary."""

import asyncio
from dataclasses import dataclass
from inspect import signature
from typing import cast, get_type_hints

from aiohttp import web

from voda.api import routes
from voda.api.backend import Backend
from voda.api.operation import ANONYMOUS, Operation, Routes
from voda.auth.callers import Caller
from voda.domain.plugins import classes_in


@dataclass
class ThingRoutes(Routes):
    """The operations on things."""

    tag = "Things"

    things: str

    @Operation("GET", "/things")
    async def list_things(self, _request: web.Request, _caller: Caller) -> web.StreamResponse:
        """List all things.

        More about it.
        """
        return web.Response(text=f"{self.things} of {type(self).__name__}")

    @Operation("DELETE", "/things/{thing}")
    async def delete_thing(self, _request: web.Request, _caller: Caller) -> web.StreamResponse:
        """Delete a thing."""
        return web.Response(status=204)

    async def no_operation(self) -> None:
        """Do nothing."""


def test_operations_have_the_names_and_summaries_of_their_handlers_in_their_order() -> None:
    operations = ThingRoutes("things").operations()
    assert [(one.method, one.path, one.name, one.summary, one.tag) for one in operations] == [
        ("GET", "/things", "listThings", "List all things", "Things"),
        ("DELETE", "/things/{thing}", "deleteThing", "Delete a thing", "Things"),
    ]


def test_handler_is_bound_to_its_routes() -> None:
    first, _ = ThingRoutes("things").operations()
    response = asyncio.run(_handled(first))
    assert response.text == "things of ThingRoutes"


async def _handled(operation: Operation) -> web.Response:
    assert operation.handler is not None
    response = await operation.handler(cast("web.Request", None), ANONYMOUS)
    assert isinstance(response, web.Response)
    return response


def test_routes_name_parts_that_there_are_behind_the_api_with_their_types() -> None:
    parts = get_type_hints(Backend)
    for resource in classes_in(routes):
        if issubclass(resource, Routes):
            named = {name: get_type_hints(resource)[name] for name in signature(resource).parameters}
            assert named == {name: parts.get(name) for name in named}, resource
