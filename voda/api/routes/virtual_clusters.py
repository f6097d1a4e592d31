"""Virtual clusters: who is guaranteed which cells, and the cells themselves."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Final

from aiohttp import web
from msgspec import Meta, Struct

from voda.api.admission import CallerLimits
from voda.api.operation import ADMINS, JSON, YAML, Operation, RequestBody, Response, Routes
from voda.api.presenters.virtual_clusters import applied, cells_of, virtual_clusters_of
from voda.api.requests import json_response, manifest_text, query_of
from voda.application.journal import Journal
from voda.application.lookup import known_pool, pool_names, pool_state
from voda.application.virtual_clusters.apply import ApplyOptions, apply_virtual_clusters
from voda.auth.callers import Caller
from voda.domain.cells import CellsSpec
from voda.domain.errors import InvalidField, NotFound
from voda.domain.state import ClusterState
from voda.manifests.virtual_clusters import read_virtual_clusters
from voda.wire.virtual_clusters import (
    ApplyView,
    CellList,
    SpecificationView,
    VirtualClusterList,
    VirtualClusterView,
)

_PATH: Final = "/api/v1/virtual-clusters"
_VIRTUAL_CLUSTER: Final = {"virtual_cluster": "Its name."}


class VirtualClustersQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Of which pool."""

    pool: Annotated[str, Meta(description="By default all of them.")] = ""


class CellsQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which cells."""

    pool: Annotated[str, Meta(description="By default those of all pools.")] = ""
    devices: Annotated[bool, Meta(description="Whether single devices are listed too.")] = False


class ApplyQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How they are applied."""

    pool: Annotated[str, Meta(description="By default the one that the file names, else the server's first.")] = ""
    dry_run: Annotated[bool, Meta(description="Say what would change, and change nothing.")] = False
    force: Annotated[bool, Meta(description="Apply them even if jobs that run lose guarantees.")] = False
    revision: Annotated[
        Annotated[int, Meta(ge=0, le=2**53)] | None,
        Meta(description="Apply them only if they are still at this revision (409 if not)."),
    ] = None


@dataclass
class VirtualClusterRoutes(Routes):
    """The operations on virtual clusters and cells."""

    tag = "Virtual clusters"

    journal: Journal
    limits: CallerLimits
    pools: Sequence[str]

    @Operation("GET", _PATH, query=VirtualClustersQuery, answers=[Response(of=VirtualClusterList)], problems=[404])
    async def list_virtual_clusters(self, request: web.Request, _caller: Caller) -> web.StreamResponse:
        """List virtual clusters, what they are guaranteed and what of it is in use."""
        return json_response(
            VirtualClusterList(items=await self._virtual_clusters(query_of(request, VirtualClustersQuery).pool))
        )

    @Operation(
        "GET",
        f"{_PATH}/{{virtual_cluster}}",
        query=VirtualClustersQuery,
        path_parameters=_VIRTUAL_CLUSTER,
        answers=[Response(of=VirtualClusterView)],
        problems=[404],
    )
    async def get_virtual_cluster(self, request: web.Request, _caller: Caller) -> web.StreamResponse:
        """Get one virtual cluster."""
        name = request.match_info["virtual_cluster"]
        views = await self._virtual_clusters(query_of(request, VirtualClustersQuery).pool)
        found = [each for each in views if each.name == name]
        if not found:
            known = ", ".join(dict.fromkeys(each.name for each in views)) or "none"
            raise NotFound(f"virtual cluster {name[:80]!r} is not known. Known: {known[:400]}.")
        if len(found) > 1:
            pools = ", ".join(each.pool for each in found)
            raise InvalidField("pool", f"pool: virtual cluster {name} is in several, expected one of {pools[:400]}")
        return json_response(found[0])

    @Operation(
        "PUT",
        _PATH,
        description="The body is a file of virtual clusters, HiveD's configuration among them: it takes the place of"
        " what was applied before. It is checked against the nodes first: quotas that do not fit are refused. Jobs that"
        " run go on; where that costs some of them their guarantee, it needs `force`.",
        roles=ADMINS,
        query=ApplyQuery,
        body=RequestBody(of=None, media_types=(YAML, JSON), description="A file of virtual clusters."),
        answers=[Response(of=ApplyView)],
        problems=[404, 409],
    )
    async def apply_virtual_clusters(self, request: web.Request, caller: Caller) -> web.StreamResponse:
        """Give a pool other cells and virtual clusters, or say what that would change."""
        query = query_of(request, ApplyQuery)
        body = await manifest_text(request, self.limits)
        file = await asyncio.to_thread(read_virtual_clusters, body)
        pool = known_pool(self.pools, self.journal.view, query.pool or file.pool or self.pools[0])
        options = ApplyOptions(is_dry_run=query.dry_run, force=query.force, revision=query.revision)
        outcome = await apply_virtual_clusters(self.journal, pool, file.cells, actor=caller.user, options=options)
        return json_response(applied(pool, outcome, file))

    @Operation("GET", "/api/v1/cells", query=CellsQuery, answers=[Response(of=CellList)], problems=[404])
    async def list_cells(self, request: web.Request, _caller: Caller) -> web.StreamResponse:
        """List the physical cells of pools with virtual clusters."""
        query = query_of(request, CellsQuery)
        cells = [
            cell
            for state in self._states(query.pool)
            for cell in await asyncio.to_thread(cells_of, state, with_devices=query.devices)
        ]
        return json_response(CellList(items=tuple(cells)))

    @Operation(
        "GET",
        "/api/v1/cells/specification",
        query=VirtualClustersQuery,
        answers=[Response(of=SpecificationView)],
        problems=[404],
    )
    async def get_specification(self, request: web.Request, _caller: Caller) -> web.StreamResponse:
        """Get what was applied to a pool, by default the server's first, as a file of virtual clusters."""
        pool = known_pool(self.pools, self.journal.view, query_of(request, VirtualClustersQuery).pool or self.pools[0])
        state = pool_state(self.journal.view, pool)
        cells = state.cells or CellsSpec()
        return json_response(SpecificationView(pool=pool, revision=state.cells_revision, specification=cells))

    async def _virtual_clusters(self, pool: str) -> tuple[VirtualClusterView, ...]:
        views = [each for state in self._states(pool) for each in await asyncio.to_thread(virtual_clusters_of, state)]
        return tuple(views)

    def _states(self, pool: str) -> Sequence[ClusterState]:
        names = [known_pool(self.pools, self.journal.view, pool)] if pool else pool_names(self.pools, self.journal.view)
        return [pool_state(self.journal.view, name) for name in names]
