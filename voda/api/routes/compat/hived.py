"""HiveD's endpoints: kube-scheduler's extender, and the inspection that OpenPAI's front end reads.

Rule: bodies and answers are HiveD's, to the word; refusals are problems like everywhere. See
docs/migrating-from-hived.md.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from aiohttp import web

from voda.api.admission import CallerLimits
from voda.api.operation import SCHEDULERS, Operation, RequestBody, Response, Routes
from voda.api.requests import json_response, raw_body
from voda.auth.callers import Caller
from voda.cells.book import CellBook
from voda.domain.errors import NotFound
from voda.extender.wire import (
    ExtenderBindingResult,
    ExtenderFilterResult,
    ExtenderPreemptionResult,
)
from voda.hived.inspection import affinity_group, affinity_groups, gangs_of_pods, physical_cluster, virtual_clusters
from voda.operator.extender import Extender
from voda.operator.hived.pod_scheduler import PodScheduler
from voda.operator.pod_ports import PodPorts

_OBJECT: Final = (Response(description="As HiveD's; its fields are not listed here."),)
_GROUPS: Final = "/v1/inspect/affinitygroups"


def _verb(name: str, result: type) -> Operation:
    return Operation(
        "POST",
        f"/v1/extender/{name}",
        description="kube-scheduler sends this (extender v1). Only the replica that leads answers; others answer 503.",
        roles=SCHEDULERS,
        body=RequestBody(of=None, description="As kube-scheduler writes it; letter case does not matter."),
        answers=[Response(of=result)],
        problems=[404, 503],
    )


def _inspection(path: str, parameter: str = "") -> Operation:
    return Operation(
        "GET",
        path,
        path_parameters={parameter: "Its name."} if parameter else {},
        answers=_OBJECT,
        problems=[404, 503],
    )


@dataclass
class HivedRoutes(Routes):
    """The operations of HiveD."""

    tag = "HiveD"

    limits: CallerLimits
    pods: PodPorts

    @_verb("filter", ExtenderFilterResult)
    async def hived_filter(self, request: web.Request, _caller: Caller) -> web.StreamResponse:
        """Say on which node a pod with HiveD's annotations has its cells, or why on none."""
        extender = self._extender()
        return json_response(await extender.filter(await raw_body(request, self.limits)))

    @_verb("preempt", ExtenderPreemptionResult)
    async def hived_preempt(self, request: web.Request, _caller: Caller) -> web.StreamResponse:
        """Say which pods must leave for a pod, whose cells are reserved from then on."""
        extender = self._extender()
        return json_response(await extender.preempt(await raw_body(request, self.limits)))

    @_verb("bind", ExtenderBindingResult)
    async def hived_bind(self, request: web.Request, _caller: Caller) -> web.StreamResponse:
        """Bind a pod to the node of its cells."""
        extender = self._extender()
        return json_response(await extender.bind(await raw_body(request, self.limits)))

    @_inspection(f"{_GROUPS}/")
    async def hived_list_affinity_groups(self, _request: web.Request, _caller: Caller) -> web.StreamResponse:
        """List the affinity groups that have cells or have reserved some."""
        groups = [group for book in self._books() for group in affinity_groups(book)["items"]]
        return json_response({"items": groups})

    @_inspection(f"{_GROUPS}/{{group}}", "group")
    async def hived_get_affinity_group(self, request: web.Request, _caller: Caller) -> web.StreamResponse:
        """Get one affinity group."""
        name = request.match_info["group"]
        for book in self._books():
            for gang in gangs_of_pods(book):
                if gang.name == name:
                    return json_response(affinity_group(book, gang))
        raise NotFound(f"affinity group {name[:80]!r} has no cells")

    @_inspection("/v1/inspect/clusterstatus")
    async def hived_get_cluster_status(self, _request: web.Request, _caller: Caller) -> web.StreamResponse:
        """Get the physical cells, and those of each virtual cluster."""
        return json_response({"physicalCluster": await self._physical(), "virtualClusters": await self._virtual()})

    @_inspection("/v1/inspect/clusterstatus/physicalcluster")
    async def hived_get_physical_cluster(self, _request: web.Request, _caller: Caller) -> web.StreamResponse:
        """Get the physical cells."""
        return json_response(await self._physical())

    @_inspection("/v1/inspect/clusterstatus/virtualclusters/")
    async def hived_list_virtual_clusters(self, _request: web.Request, _caller: Caller) -> web.StreamResponse:
        """Get the cells of every virtual cluster."""
        return json_response(await self._virtual())

    @_inspection("/v1/inspect/clusterstatus/virtualclusters/{virtual_cluster}", "virtual_cluster")
    async def hived_get_virtual_cluster(self, request: web.Request, _caller: Caller) -> web.StreamResponse:
        """Get the cells of one virtual cluster."""
        name, found = request.match_info["virtual_cluster"], await self._virtual()
        if name not in found:
            raise NotFound(f"virtual cluster {name[:80]!r} is not known. Known: {', '.join(found)[:400] or 'none'}.")
        return json_response(found[name])

    def _extender(self) -> Extender[PodScheduler]:
        if (extender := self.pods.hived) is None:
            raise NotFound("this voda schedules no pods: HiveD's endpoints are served on Kubernetes")
        # Before a body of ten megabytes is read.
        extender.decider.refuse_unless_leading()
        return extender

    def _books(self) -> Sequence[CellBook]:
        return self._extender().decider.books()

    async def _physical(self) -> list[Any]:
        # In a thread, on copies: a large cluster takes a while, and others would wait.
        books = [book.copy() for book in self._books()]
        return [cell for book in books for cell in await asyncio.to_thread(physical_cluster, book)]

    async def _virtual(self) -> dict[str, list[Any]]:
        found: dict[str, list[Any]] = {}
        for book in [book.copy() for book in self._books()]:
            for name, cells in (await asyncio.to_thread(virtual_clusters, book)).items():
                found.setdefault(name, []).extend(cells)
        return found
