"""What is promised of every Lease, on a real API server; those that a log's own store keeps are in tests/contract."""

import itertools
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

from tests.contract.lease_claims import LeaseClaims
from tests.kube.client import NAMESPACES, Client
from tests.kube.control_plane import ControlPlane
from voda.clock import SystemClock
from voda.kubernetes_client.api import Api
from voda.kubernetes_client.lease import LeaseClient

NAMESPACE = "lease-claims"
_names = (f"lease-{number}" for number in itertools.count())


class KubernetesBench:
    """Candidates with connections of their own."""

    def __init__(self, plane: ControlPlane, stack: AsyncExitStack) -> None:
        self._plane = plane
        self._name = next(_names)
        self._stack = stack

    async def candidate(self) -> LeaseClient:
        api = await Api.open(self._plane.kubeconfig())
        self._stack.push_async_callback(api.close)
        return LeaseClient(api, NAMESPACE, self._name, clock=SystemClock())


class TestKubernetes(LeaseClaims):
    @pytest.fixture
    async def bench(self, control_plane: ControlPlane) -> AsyncIterator[KubernetesBench]:
        async with Client(control_plane) as hand:
            if await hand.find(NAMESPACES, NAMESPACE) is None:
                await hand.create(NAMESPACES, {"metadata": {"name": NAMESPACE}})
        async with AsyncExitStack() as stack:
            yield KubernetesBench(control_plane, stack)
