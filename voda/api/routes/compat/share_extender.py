"""Pods that ask for GPUs: what each has, or why it waits; and kube-scheduler's extender for those that ask by
resources, under the paths of elastic-gpu-scheduler.
"""

from dataclasses import dataclass
from typing import Final

from aiohttp import web

from voda import __version__
from voda.api.admission import CallerLimits
from voda.api.operation import PUBLIC, READERS, SCHEDULERS, TEXT, Operation, RequestBody, Response, Routes
from voda.api.presenters.pods import sharing_pod_of
from voda.api.requests import json_response, raw_body
from voda.application.journal import Journal
from voda.auth.callers import Caller
from voda.domain.errors import NotFound
from voda.domain.shares import SharingNode
from voda.extender.wire import (
    ExtenderArgs,
    ExtenderBindingResult,
    ExtenderFilterResult,
    ExtenderPreemptionResult,
    HostPriority,
)
from voda.operator.extender import Extender
from voda.operator.pod_ports import PodPorts
from voda.operator.sharing.share_extender import ShareExtender
from voda.wire.pods import SharingPodView

_ARGUMENTS: Final = RequestBody(of=None, description="ExtenderArgs of kube-scheduler, with NodeNames.")
_VICTIMS: Final = RequestBody(of=None, description="ExtenderPreemptionArgs of kube-scheduler.")
_BINDING: Final = RequestBody(of=None, description="ExtenderBindingArgs of kube-scheduler.")


@dataclass
class PodRoutes(Routes):
    """The operations on pods."""

    tag = "Pods"

    journal: Journal
    pods: PodPorts

    @Operation(
        "GET",
        "/api/v1/pods/{namespace}/{name}",
        path_parameters={"namespace": "Of the pod.", "name": "Of the pod."},
        answers=[Response(of=SharingPodView)],
        problems=[404, 503],
    )
    async def get_pod(self, request: web.Request, _caller: Caller) -> web.StreamResponse:
        """Explain why a pod that asks for GPUs has them, or waits."""
        if (pods := self.pods.explanations) is None:
            raise NotFound("this server knows no pods: it does not run on Kubernetes")
        found = pods.explain(request.match_info["namespace"], request.match_info["name"])
        account = self.journal.view.cluster.shares.nodes.get(found.node, SharingNode())
        return json_response(sharing_pod_of(found, account))


@dataclass
class ShareExtenderRoutes(Routes):
    """The verbs."""

    tag = "Extender"

    limits: CallerLimits
    pods: PodPorts

    @Operation(
        "POST",
        "/scheduler/filter",
        roles=SCHEDULERS,
        body=_ARGUMENTS,
        answers=[Response(of=ExtenderFilterResult)],
        problems=[404],
    )
    async def filter_for_gpus(self, request: web.Request, _caller: Caller) -> web.StreamResponse:
        """Of nodes, name those where the GPUs that a pod asks for are free."""
        return json_response(await self._extender.filter(await raw_body(request, self.limits)))

    @Operation(
        "POST",
        "/scheduler/priorities",
        roles=SCHEDULERS,
        body=_ARGUMENTS,
        answers=[Response(of=tuple[HostPriority, ...])],
        problems=[404],
    )
    async def prioritize_for_gpus(self, request: web.Request, _caller: Caller) -> web.StreamResponse:
        """Say how much each node is preferred for a pod that asks for GPUs, 0 to 10."""
        body = await raw_body(request, self.limits)
        return json_response(await self._extender.answer(body, ExtenderArgs, self._extender.decider.prioritize))

    @Operation(
        "POST",
        "/scheduler/preemption",
        roles=SCHEDULERS,
        body=_VICTIMS,
        answers=[Response(of=ExtenderPreemptionResult)],
        problems=[404],
    )
    async def preempt_for_gpus(self, request: web.Request, _caller: Caller) -> web.StreamResponse:
        """Of nodes with victims, name those where the pod's GPUs are free once these have left."""
        return json_response(await self._extender.preempt(await raw_body(request, self.limits)))

    @Operation(
        "POST",
        "/scheduler/bind",
        roles=SCHEDULERS,
        body=_BINDING,
        answers=[Response(of=ExtenderBindingResult)],
        problems=[404],
    )
    async def bind_with_gpus(self, request: web.Request, _caller: Caller) -> web.StreamResponse:
        """Give a pod its GPUs, and bind it."""
        return json_response(await self._extender.bind(await raw_body(request, self.limits)))

    @Operation(
        "GET",
        "/scheduler/status",
        description="Resource -> JSON, as text, of node -> its GPUs, as elastic-gpu-scheduler has it.",
        roles=READERS | SCHEDULERS,
        answers=[Response(of=dict[str, str])],
        problems=[404],
    )
    async def get_share_status(self, _request: web.Request, _caller: Caller) -> web.StreamResponse:
        """Get what is left of the GPUs of all nodes."""
        return json_response(self._extender.decider.status())

    @Operation("GET", "/version", roles=PUBLIC, answers=[Response(media_type=TEXT)])
    async def get_version_text(self, _request: web.Request, _caller: Caller) -> web.StreamResponse:
        """Get voda's version."""
        return web.Response(text=__version__)

    @property
    def _extender(self) -> Extender[ShareExtender]:
        if (extender := self.pods.shares) is None:
            raise NotFound("this server does not extend kube-scheduler: set sharing.enabled of voda serve")
        return extender
