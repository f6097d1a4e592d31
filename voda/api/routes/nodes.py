"""Nodes: which there are, and who holds their GPUs."""

from collections.abc import Sequence
from typing import Annotated

from aiohttp import web
from msgspec import Meta, Struct

from voda.api.operation import Operation, Response
from voda.api.presenters.nodes import nodes_of
from voda.api.requests import json_response, query_of
from voda.api.schemas.pools import NodeList, NodeView
from voda.application.backend import Backend
from voda.application.pools import known_pool, pool_names, pool_state
from voda.auth.callers import Caller
from voda.domain.errors import NotFound

_TAG = "Nodes"


class NodesQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which nodes."""

    pool: Annotated[str, Meta(description="Only those of this pool.")] = ""


def routes(backend: Backend) -> Sequence[Operation]:
    """Return the operations on nodes."""

    async def list_nodes(request: web.Request, _who: Caller) -> web.StreamResponse:
        pool = query_of(request, NodesQuery).pool
        return json_response(NodeList(items=_nodes(backend, [known_pool(backend, pool)] if pool else None)))

    async def get_node(request: web.Request, _who: Caller) -> web.StreamResponse:
        name = request.match_info["name"]
        nodes = _nodes(backend)
        found = next((node for node in nodes if node.name == name), None)
        if found is None:
            there_are = ", ".join(node.name for node in nodes) or "none"
            raise NotFound(f"node {name[:80]!r} is not known. Known: {there_are[:400]}.")
        return json_response(found)

    return [
        Operation(
            method="GET",
            path="/api/v1/nodes",
            handler=list_nodes,
            name="listNodes",
            summary="List nodes with their GPUs and who holds them",
            tag=_TAG,
            query=NodesQuery,
            answers=[Response(of=NodeList)],
            problems=[404],
        ),
        Operation(
            method="GET",
            path="/api/v1/nodes/{name}",
            handler=get_node,
            name="getNode",
            summary="Get one node",
            tag=_TAG,
            path_parameters={"name": "Of the node."},
            answers=[Response(of=NodeView)],
            problems=[404],
        ),
    ]


def _nodes(backend: Backend, of: Sequence[str] | None = None) -> tuple[NodeView, ...]:
    """Return the nodes of these pools, or of all, by name."""
    found: list[NodeView] = []
    for pool in pool_names(backend) if of is None else of:
        state = pool_state(backend, pool)
        found += nodes_of(state.nodes.values(), state.jobs.values())
    return tuple(sorted(found, key=lambda node: node.name))
