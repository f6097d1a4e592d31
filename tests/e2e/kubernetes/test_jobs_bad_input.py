"""Indexed Jobs that cannot run as they are, and what `voda explain` and an Event on the Job say of it."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from io import StringIO
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
from rich.console import Console

from tests.e2e.kubernetes.service import Voda, voda
from tests.kube import client as api
from tests.kube.client import QUOTAS, Object, Refused, Resource
from tests.kube.objects import GPU, a_node, a_pod, an_indexed_job
from tests.kube.peers.jobs_world import JobsWorld
from tests.ports import free_port
from voda.cli.render.explanation import explanation_text
from voda.cluster.kubernetes import leader_loop
from voda.cluster.kubernetes.convergence import stalls
from voda.events.types import JobSubmitted
from voda.wire.explanations import ExplanationView

LIMIT_RANGES = Resource("LimitRange", "v1", "limitranges")
_ADMISSION = "admissionregistration.k8s.io/v1"
POLICIES = Resource("ValidatingAdmissionPolicy", _ADMISSION, "validatingadmissionpolicies", is_namespaced=False)
POLICY_BINDINGS = Resource(
    "ValidatingAdmissionPolicyBinding", _ADMISSION, "validatingadmissionpolicybindings", is_namespaced=False
)
WEBHOOKS = Resource(
    "ValidatingWebhookConfiguration", _ADMISSION, "validatingwebhookconfigurations", is_namespaced=False
)
OTHER_GATE = {"name": "example.com/data"}


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have whatever lasts for a moment told, and looked for often."""
    monkeypatch.setattr(stalls, "SOON_S", 0.3)
    monkeypatch.setattr(leader_loop, "_SWEEP_S", 0.1)


async def test_pod_whose_gate_somebody_else_lifted_is_made_again_where_the_plan_wants_it(
    jobs_world: JobsWorld, tmp_path: Path
) -> None:
    world = jobs_world
    await world.add_nodes(a_node("gpu-1", 2), a_node("gpu-2", 2, pool="a100"))
    async with voda(world, tmp_path) as it:
        # The gate of somebody else keeps voda from lifting its own.
        spec = {"schedulingGates": [OTHER_GATE]}
        job = an_indexed_job("a", world.namespace, 2, least=2, most=2, worker_spec=spec, pool="v100")
        await world.submit(job)
        await world.until_it_is(lambda: has_pods(world, "a", 2))
        elsewhere = {"spec": {"schedulingGates": None, "nodeSelector": {"kubernetes.io/hostname": "gpu-2"}}}
        for pod in await world.pods_of("a"):
            await world.client.patch(api.PODS, (world.namespace, pod["metadata"]["name"]), elsewhere)
        # `explain` says so only until the new pods are seen to wait.
        await it.until(lambda: tells(world, "a", "ActionFailed", "was lifted by somebody else"))
        await world.until_it_is(lambda: are_gated(world, "a", 2))
        for pod in await world.pods_of("a"):
            await world.client.patch(api.PODS, (world.namespace, pod["metadata"]["name"]), without(pod, OTHER_GATE))
        await it.until_runs("a", 2)
        assert set(it.nodes(it.id("a"))) == {"gpu-1"}


async def test_gates_of_others_are_kept_and_waited_for(jobs_world: JobsWorld, tmp_path: Path) -> None:
    world = jobs_world
    await world.add_node("gpu-1", gpus=2)
    async with voda(world, tmp_path) as it:
        spec = {"schedulingGates": [OTHER_GATE]}
        await world.submit(an_indexed_job("a", world.namespace, 2, least=2, most=2, worker_spec=spec))
        await world.until_it_is(lambda: has_pods(world, "a", 2))
        await it.until(
            lambda: tells(world, "a", "Stalled", "example.com/data"),
        )
        assert "example.com/data" in await explained(it, it.id("a"))
        for pod in await world.pods_of("a"):
            await world.client.patch(api.PODS, (world.namespace, pod["metadata"]["name"]), without(pod, OTHER_GATE))
        await it.until_runs("a", 2)


async def test_node_selector_that_no_planned_node_meets_is_told(jobs_world: JobsWorld, tmp_path: Path) -> None:
    world = jobs_world
    await world.add_node("gpu-1", gpus=2)
    async with voda(world, tmp_path) as it:
        selector = {"nodeSelector": {"disk": "ssd"}}
        await world.submit(an_indexed_job("a", world.namespace, 2, least=2, most=2, worker_spec=selector))
        await it.until(lambda: tells(world, "a", "Queued", "queued as job"))
        await it.until(lambda: is_explained(it, it.id("a"), "workers require disk=ssd, it has no such label"))
        await world.add_nodes(a_node("gpu-2", 2, labels={"disk": "ssd"}))
        await it.until_runs("a", 2)
        assert set(it.nodes(it.id("a"))) == {"gpu-2"}


async def test_node_selector_that_names_a_node_is_kept(jobs_world: JobsWorld, tmp_path: Path) -> None:
    world = jobs_world
    await world.add_nodes(a_node("gpu-1", 2), a_node("gpu-2", 2))
    async with voda(world, tmp_path) as it:
        selector = {"nodeSelector": {"kubernetes.io/hostname": "gpu-2"}}
        await world.submit(an_indexed_job("a", world.namespace, 2, least=2, most=2, worker_spec=selector))
        await it.until_runs("a", 2)
        assert set(it.nodes(it.id("a"))) == {"gpu-2"}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"completions": 3}, "spec.completions: expected 2, as parallelism, got 3"),
        ({"completionMode": "NonIndexed"}, "spec.completionMode: expected Indexed, got 'NonIndexed'"),
    ],
)
async def test_job_that_cannot_be_resized_is_refused_and_stays_as_it_is(
    jobs_world: JobsWorld, tmp_path: Path, change: Mapping[str, Any], said: str
) -> None:
    world = jobs_world
    await world.add_node("gpu-1", gpus=2)
    async with voda(world, tmp_path) as it:
        await world.submit(an_indexed_job("a", world.namespace, 2, least=1, most=2, suspend=False, spec=change))
        await it.until(lambda: tells(world, "a", "Invalid", said))
        await it.until(lambda: is_shown(world, "a.job", "Refused", said))
        assert (await world.job("a"))["spec"]["suspend"] is False
        assert not await it.facts(JobSubmitted)


async def test_quota_that_refuses_pods_is_told_with_what_the_server_says(jobs_world: JobsWorld, tmp_path: Path) -> None:
    world = jobs_world
    await world.add_node("gpu-1", gpus=2)
    quota = {"metadata": {"name": "few", "namespace": world.namespace}, "spec": {"hard": {f"requests.{GPU}": "1"}}}
    await world.client.create(QUOTAS, quota)
    async with voda(world, tmp_path) as it:
        await world.submit(an_indexed_job("a", world.namespace, 2, least=2, most=2))
        await it.until(lambda: tells(world, "a", "Stalled", "exceeded quota: few"))
        assert "exceeded quota: few" in await explained(it, it.id("a"))
        await world.client.delete(QUOTAS, "few", world.namespace)
        await it.until_runs("a", 2)


async def test_limit_range_that_refuses_pods_is_told_with_what_the_server_says(
    jobs_world: JobsWorld, tmp_path: Path
) -> None:
    world = jobs_world
    await world.add_node("gpu-1", gpus=2)
    limits = {"limits": [{"type": "Container", "max": {"memory": "1Gi"}}]}
    await world.client.create(
        LIMIT_RANGES, {"metadata": {"name": "small", "namespace": world.namespace}, "spec": limits}
    )
    async with voda(world, tmp_path) as it:
        resources = {"requests": {"memory": "2Gi"}, "limits": {"memory": "2Gi"}}
        await world.submit(an_indexed_job("a", world.namespace, 2, least=2, most=2, resources=resources))
        await it.until(lambda: tells(world, "a", "Stalled", "maximum memory usage per Container is 1Gi"))
        assert "maximum memory usage" in await explained(it, it.id("a"))
        await world.client.delete(LIMIT_RANGES, "small", world.namespace)
        await it.until_runs("a", 2)


@pytest.mark.parametrize(
    ("resource", "expression"),
    [
        (api.JOBS, "object.spec.suspend == true"),
        (api.PODS, "has(object.spec.schedulingGates) || !has(oldObject.spec.schedulingGates)"),
    ],
    ids=["resuming its Job", "lifting its gates"],
)
async def test_write_that_a_policy_of_the_cluster_refuses_is_told_until_the_policy_goes(
    jobs_world: JobsWorld, tmp_path: Path, resource: Resource, expression: str
) -> None:
    world = jobs_world
    await world.add_node("gpu-1", gpus=2)
    async with refusing(world, resource, expression), voda(world, tmp_path) as it:
        await world.submit(an_indexed_job("a", world.namespace, 2, least=2, most=2))
        await it.until(lambda: tells(world, "a", "ActionFailed", "no training before the audit"))
        await it.until(lambda: is_explained(it, it.id("a"), "no training before the audit"))
        await world.client.delete(POLICY_BINDINGS, world.namespace)
        await it.until_runs("a", 2)


async def test_webhook_that_does_not_answer_is_told_until_it_goes(jobs_world: JobsWorld, tmp_path: Path) -> None:
    world = jobs_world
    await world.add_node("gpu-1", gpus=2)
    async with unanswered(world), voda(world, tmp_path) as it:
        await world.submit(an_indexed_job("a", world.namespace, 2, least=2, most=2))
        await it.until(lambda: tells(world, "a", "ActionFailed", 'failed calling webhook "gone.example.com"'))
        await it.until(lambda: is_explained(it, it.id("a"), 'failed calling webhook "gone.example.com"'))
        await world.client.delete(WEBHOOKS, world.namespace)
        await it.until_runs("a", 2)


async def test_job_of_a_namespace_that_is_deleted_is_canceled_and_one_submitted_to_it_says_so(
    jobs_world: JobsWorld, tmp_path: Path
) -> None:
    world = jobs_world
    await world.add_node("gpu-1", gpus=4)
    going = f"{world.namespace}-going"
    await world.add_namespace(going)
    async with voda(world, tmp_path) as it:
        await world.client.create(api.JOBS, an_indexed_job("a", going, 2, least=2, most=2, suspend=True))
        await it.until(lambda: runs_in(it, f"{going}_a", 2))
        kept = {"name": "kept", "namespace": going, "finalizers": ["tests.voda.dev/kept"]}
        await world.client.create(api.CONFIG_MAPS, {"metadata": kept})
        await world.client.delete(api.NAMESPACES, going)
        await it.until(lambda: is_phase(it, f"{going}_a", "Canceled"))
        job_id = await submitted(it, an_indexed_job("b", going, 2, least=2, most=2))
        await it.until(lambda: is_explained(it, job_id, "because it is being terminated"))
        await world.client.patch(api.CONFIG_MAPS, (going, "kept"), {"metadata": {"finalizers": None}})


@asynccontextmanager
async def refusing(world: JobsWorld, resource: Resource, expression: str) -> AsyncIterator[None]:
    """Have the API server refuse changes of objects of the world's namespace for which an expression does not hold."""
    name = world.namespace
    rule = {"apiGroups": [_group(resource)], "apiVersions": ["v1"], "operations": ["UPDATE"]}
    constraints = {"resourceRules": [{**rule, "resources": [resource.plural]}], **_within(world)}
    validation = {"expression": expression, "message": "no training before the audit"}
    spec = {"failurePolicy": "Fail", "matchConstraints": constraints, "validations": [validation]}
    await world.client.create(POLICIES, {"metadata": {"name": name}, "spec": spec})
    binding = {"policyName": name, "validationActions": ["Deny"]}
    await world.client.create(POLICY_BINDINGS, {"metadata": {"name": name}, "spec": binding})
    try:
        await world.until_it_is(lambda: _is_refused(world, resource))
        yield
    finally:
        await world.client.delete(POLICY_BINDINGS, name)
        await world.client.delete(POLICIES, name)


@asynccontextmanager
async def unanswered(world: JobsWorld) -> AsyncIterator[None]:
    """Have the API server ask a webhook about Jobs of the world's namespace where nobody listens."""
    rule = {"apiGroups": ["batch"], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["jobs"]}
    webhook: Object = {"name": "gone.example.com", "clientConfig": {"url": f"https://127.0.0.1:{free_port()}/"}}
    webhook |= {"rules": [rule], "failurePolicy": "Fail", "sideEffects": "None", "admissionReviewVersions": ["v1"]}
    body = {"metadata": {"name": world.namespace}, "webhooks": [{**webhook, **_within(world)}]}
    await world.client.create(WEBHOOKS, body)
    try:
        await world.until_it_is(lambda: _is_refused(world, api.JOBS))
        yield
    finally:
        await world.client.delete(WEBHOOKS, world.namespace)


def _within(world: JobsWorld) -> Object:
    return {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": world.namespace}}}


def _group(resource: Resource) -> str:
    return resource.api_version.rpartition("/")[0]


async def _is_refused(world: JobsWorld, resource: Resource) -> bool:
    """Say whether a change of a probe is refused: a policy takes effect some seconds after it was made."""
    probe, key = f"probe-{resource.plural}", (world.namespace, f"probe-{resource.plural}")
    if await world.client.find(resource, probe, world.namespace) is None:
        if resource is api.PODS:
            await world.client.create(api.PODS, a_pod(probe, world.namespace, spec={"schedulingGates": [OTHER_GATE]}))
        else:
            await world.client.create(api.JOBS, an_indexed_job(probe, world.namespace, 1, suspend=True, managed=False))
    change = {"schedulingGates": None} if resource is api.PODS else {"suspend": False}
    try:
        await world.client.request(
            "PATCH", resource.path(*key), {"dryRun": "All"}, {"spec": change}, content_type=api.MERGE
        )
    except Refused:
        await world.client.delete(resource, probe, world.namespace)
        return True
    return False


def without(pod: Object, gate: Object) -> Object:
    """Return the patch that lifts one gate of a pod."""
    return {"spec": {"schedulingGates": [each for each in pod["spec"]["schedulingGates"] if each != gate]}}


async def are_gated(world: JobsWorld, name: str, count: int) -> bool:
    pods = await world.pods_of(name)
    return len(pods) == count == sum("schedulingGates" in pod["spec"] for pod in pods)


async def has_pods(world: JobsWorld, name: str, count: int) -> bool:
    return len(await world.pods_of(name)) == count


async def is_shown(world: JobsWorld, name: str, state: str, part: str) -> bool:
    shown = await world.client.find(api.JOB_STATES, name, world.namespace) or {}
    return shown.get("state") == state and part in shown.get("explanation", "")


async def tells(world: JobsWorld, name: str, reason: str, part: str) -> bool:
    return any(part in each for each in await world.told(name, reason))


async def submitted(it: Voda, manifest: Object) -> str:
    """Submit a job by the API, and return its id."""
    async with (
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(10.0)) as session,
        session.post(f"{it.service.url}/api/v1/jobs", json=manifest) as answer,
    ):
        assert answer.status == 201, await answer.text()
        return str((await answer.json())["job"]["job_id"])


async def is_explained(it: Voda, job_id: str, part: str) -> bool:
    return part in await explained(it, job_id)


async def runs_in(it: Voda, job_id: str, workers: int) -> bool:
    return len(it.nodes(job_id)) == workers


async def is_phase(it: Voda, job_id: str, phase: str) -> bool:
    return it.phase(job_id) == phase


async def explained(it: Voda, job_id: str) -> str:
    """Return what `voda explain` says of a job."""
    url = f"{it.service.url}/api/v1/jobs/{job_id}/explain"
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(10.0)) as session, session.get(url) as answer:
        explanation = explanation_text(msgspec.json.decode(await answer.read(), type=ExplanationView))
    console = Console(file=StringIO(), width=1000)
    console.print(explanation)
    return str(console.file.getvalue())  # type: ignore[attr-defined]
