"""Pods that ask for cards: what each has, or why it waits."""

from aiohttp import web

from voda.api.operation import Operation, Response, Routes
from voda.api.presenters.pods import sharing_pod_of
from voda.api.requests import json_response
from voda.api.schemas.pods import SharingPodView
from voda.auth.callers import Caller
from voda.domain.errors import NotFound
from voda.domain.shares import SharingNode


class PodRoutes(Routes):
    """The operations on pods."""

    tag = "Pods"

    @Operation(
        "GET",
        "/api/v1/pods/{namespace}/{name}",
        path_parameters={"namespace": "Of the pod.", "name": "Of the pod."},
        answers=[Response(of=SharingPodView)],
        problems=[404, 503],
    )
    async def get_pod(self, request: web.Request, _caller: Caller) -> web.StreamResponse:
        """Explain why a pod that asks for cards has them, or waits."""
        if (pods := self.backend.pods) is None:
            raise NotFound("this server knows no pods: it does not run on Kubernetes")
        found = pods.explain(request.match_info["namespace"], request.match_info["name"])
        account = self.backend.view.live.cluster.shares.nodes.get(found.node, SharingNode())
        return json_response(sharing_pod_of(found, account))
