"""Nodes: which there are, and which jobs hold their GPUs."""

from collections.abc import Sequence
from typing import Annotated

from aiohttp import web
from msgspec import Meta, Struct

from voda.api.operation import Operation, Response, Routes
from voda.api.presenters.pools import nodes_of
from voda.api.requests import json_response, query_of
from voda.api.schemas.pools import NodeList, NodeView
from voda.application.pools import known_pool, pool_names, pool_state
from voda.auth.callers import Caller
from voda.domain.errors import NotFound


class NodesQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which nodes."""

    pool: Annotated[str, Meta(description="Only those of this pool.")] = ""


class NodeRoutes(Routes):
    """The operations on nodes."""

    @Operation("GET", "/api/v1/nodes", tag="Nodes", query=NodesQuery, answers=[Response(of=NodeList)], problems=[404])
    async def list_nodes(self, request: web.Request, _caller: Caller) -> web.StreamResponse:
        """List nodes with their GPUs and who holds them."""
        pool = query_of(request, NodesQuery).pool
        return json_response(NodeList(items=self._nodes([known_pool(self.backend, pool)] if pool else None)))

    @Operation(
        "GET",
        "/api/v1/nodes/{name}",
        tag="Nodes",
        path_parameters={"name": "Of the node."},
        answers=[Response(of=NodeView)],
        problems=[404],
    )
    async def get_node(self, request: web.Request, _caller: Caller) -> web.StreamResponse:
        """Get one node."""
        name, nodes = request.match_info["name"], self._nodes()
        for node in nodes:
            if node.name == name:
                return json_response(node)
        known = ", ".join(node.name for node in nodes) or "none"
        raise NotFound(f"node {name[:80]!r} is not known. Known: {known[:400]}.")

    def _nodes(self, pools: Sequence[str] | None = None) -> tuple[NodeView, ...]:
        """Return the nodes of these pools, or of all, by name."""
        nodes: list[NodeView] = []
        for pool in pool_names(self.backend) if pools is None else pools:
            state = pool_state(self.backend, pool)
            nodes += nodes_of(state.nodes.values(), state.jobs.values())
        return tuple(sorted(nodes, key=lambda node: node.name))
