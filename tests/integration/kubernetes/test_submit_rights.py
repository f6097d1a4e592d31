"""What users may have voda make, against what the API server lets them make themselves: on a real one, with RBAC."""

import asyncio
import json
import logging
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import aiohttp
import pytest

from tests.e2e.kubernetes.service import Voda, voda
from tests.kube import client
from tests.kube.client import Client, Object, Refused, Resource
from tests.kube.control_plane import OUTSIDER
from tests.kube.drawn_pods import SECRETS, STANDARD, a_harmless_template, drawn_template
from tests.kube.objects import an_indexed_job
from tests.kube.world import World
from voda.auth.tokens import Authenticator
from voda.clock import SystemClock
from voda.concurrency import for_each
from voda.events.types import ActionFailed
from voda.operator.authorization.pod_security import Level, violations
from voda.operator.authorization.pod_templates import pod_templates, secrets, service_accounts

_log = logging.getLogger(__name__)
USER = "outsider"
DRAWN = 1_000
COMPARED = 400
AT_ONCE = 8
LEVELS: Sequence[Level] = ("restricted", "baseline", "privileged")
HOME = "voda-home"
KINDS: Mapping[str, tuple[str, Mapping[str, str], str]] = {
    "Job": ("batch/v1", {"": "worker"}, "jobs"),
    "MPIJob": ("kubeflow.org/v2beta1", {"Launcher": "launcher", "Worker": "worker"}, "mpijobs"),
    "PyTorchJob": ("kubeflow.org/v1", {"Master": "pytorch", "Worker": "pytorch"}, "pytorchjobs"),
}
"""Kind -> apiVersion, role -> name of its container, plural."""
RULES: Sequence[Mapping[str, Any]] = (
    {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["create"]},
    {"apiGroups": ["kubeflow.org"], "resources": ["mpijobs", "pytorchjobs"], "verbs": ["create"]},
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["create"]},
    {"apiGroups": [""], "resources": ["secrets"], "resourceNames": [SECRETS[0]], "verbs": ["get"]},
    {"apiGroups": [""], "resources": ["serviceaccounts/token"], "resourceNames": ["builder"], "verbs": ["create"]},
)
"""What the user may do in some namespaces."""


class Place(NamedTuple):
    """A namespace."""

    name: str
    level: Level | None
    """What its label of Pod Security says; None: it has none."""
    is_open: bool
    """Whether the user has rights there."""


class Sent(NamedTuple):
    """The answer to a submit."""

    status: int
    said: str


class Submitting:
    """A user of the API, who has a token of voda and one of the cluster."""

    def __init__(self, it: Voda, world: World, session: aiohttp.ClientSession, caller: Client, token: str) -> None:
        self.it = it
        self.world = world
        self.session = session
        self.caller = caller
        self.token = token
        base = world.namespace
        self.places = (
            *(Place(f"{base}-{level}", level, True) for level in LEVELS),
            Place(f"{base}-bare", None, True),
            Place(f"{base}-closed", "privileged", False),
        )

    async def submit(self, job: Object, token: str = "") -> Sent:
        """Send a manifest."""
        headers = {"Authorization": f"Bearer {token or self.token}"}
        async with self.session.post(f"{self.it.service.url}/api/v1/jobs", json=job, headers=headers) as answer:
            return Sent(answer.status, await answer.text())

    async def may_make(self, resource: Resource, body: Object) -> bool:
        """Say whether the API server would let the user make an object."""
        said = await _refusal(self.caller, resource.path(body["metadata"]["namespace"]), body)
        # What is invalid comes to be for nobody: operators do not look at the templates of their jobs.
        assert said is None or said.status in (403, 422), said
        return said is None or said.status == 422

    async def may(self, namespace: str, verb: str, resource: str, name: str, subresource: str = "") -> bool:
        """Say whether the user has a right."""
        attributes = {"namespace": namespace, "verb": verb, "resource": resource, "name": name}
        body = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": {**attributes, "subresource": subresource}},
        }
        answer = await self.caller.request("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", body=body)
        return bool(answer["status"]["allowed"])


async def _refusal(who: Client, path: str, body: Object) -> Refused | None:
    """Return why somebody could not create an object, None where they could: `kubectl create --dry-run=server`."""
    try:
        await who.request("POST", path, query={"dryRun": "All"}, body=body)
    except Refused as refused:
        return refused
    return None


@asynccontextmanager
async def submitting(world: World, folder: Path, **settings: Any) -> AsyncIterator[Submitting]:
    """Yield a user beside a voda that has tokens."""
    await asyncio.to_thread(folder.mkdir)
    token = Authenticator.open(folder, SystemClock()).add(USER, "user")
    async with (
        voda(world, folder, has_tokens=True, own_namespace=HOME, jobsPerUser=10_000, **settings) as it,
        aiohttp.ClientSession() as session,
        Client(world.plane, OUTSIDER) as caller,
    ):
        made = Submitting(it, world, session, caller, token)
        await world.until_it_is(lambda: _is_ready(it))
        for place in made.places:
            await _add(world, place)
        yield made


async def _is_ready(it: Voda) -> bool:
    return it.service.failure() == ""


async def _add(world: World, place: Place) -> None:
    await world.add_namespace(place.name)
    labels = {"pod-security.kubernetes.io/enforce": place.level}
    await world.client.patch(client.NAMESPACES, place.name, {"metadata": {"labels": labels}})
    if place.is_open:
        await allow(world, place.name, RULES)


async def allow(world: World, namespace: str, rules: Sequence[Mapping[str, Any]], name: str = "jobs") -> None:
    """Give the user rights in a namespace."""
    metadata = {"name": name, "namespace": namespace}
    subject = {"kind": "User", "name": USER, "apiGroup": "rbac.authorization.k8s.io"}
    role = {"kind": "Role", "name": name, "apiGroup": "rbac.authorization.k8s.io"}
    await world.client.create(client.ROLES, {"metadata": metadata, "rules": list(rules)})
    await world.client.create(client.ROLE_BINDINGS, {"metadata": metadata, "roleRef": role, "subjects": [subject]})


def a_job(name: str, namespace: str, template: Object | None = None) -> Object:
    """Return an Indexed Job of one replica, as it is sent to the API."""
    made = an_indexed_job(name, namespace, 1, pool="v100", managed=False, gpus=1)
    made["spec"]["template"] = template or a_harmless_template()
    return made


def drawn_job(random: Random, name: str, namespace: str) -> Object:
    """Return a job of any kind, one of whose templates is not as it should be."""
    kind = random.choice([*KINDS])
    version, roles, _ = KINDS[kind]
    bad = random.choice([*roles])
    templates = {
        role: drawn_template(random, container) if role == bad else a_harmless_template(container)
        for role, container in roles.items()
    }
    metadata = {"name": name, "namespace": namespace, "annotations": {"voda.dev/pool": "v100"}}
    head = {"apiVersion": version, "kind": kind, "metadata": metadata}
    if kind == "Job":
        spec = {"completionMode": "Indexed", "parallelism": 1, "completions": 1, "template": templates[""]}
        return {**head, "spec": spec}
    field = "mpiReplicaSpecs" if kind == "MPIJob" else "pytorchReplicaSpecs"
    return {**head, "spec": {field: {role: {"replicas": 1, "template": each} for role, each in templates.items()}}}


# ---- the standards


@pytest.mark.parametrize("level", ["baseline", "restricted"])
async def test_level_forbids_what_the_api_server_forbids_and_nothing_else(world: World, level: Level) -> None:
    place = Place(f"{world.namespace}-{level}", level, False)
    await _add(world, place)
    random, outcomes = Random(level), Counter[str]()
    for number in range(COMPARED):
        template = drawn_template(random, changes=STANDARD)
        found = [f"{each.field}: {each.message}" for each in violations(template, "template", level)]
        metadata = {**template.get("metadata", {}), "name": f"p{number}", "namespace": place.name}
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}
        said = await _refusal(world.client, client.PODS.path(place.name), body)
        outcomes["taken" if said is None else said.reason] += 1
        # What is no pod at all is nothing to compare.
        if said is None or said.status == 403:
            assert bool(found) is (said is not None), (said, found, template)
    assert min(outcomes["taken"], outcomes["Forbidden"]) > COMPARED / 10, outcomes


# ---- users of the API


async def test_drawn_jobs_of_a_user_when_submitted_are_none_that_the_user_could_not_make(
    world: World, tmp_path: Path
) -> None:
    random = Random(27)
    async with submitting(world, tmp_path / "home") as it:
        names = [*(place.name for place in it.places), "kube-system", HOME]
        await world.add_namespace(HOME)
        for name in ("kube-system", HOME):
            # Even with all rights there.
            await allow(world, name, RULES, f"jobs-{world.namespace}")
        namespaces = random.choices(names, [4, 4, 2, 4, 1, 1, 1], k=DRAWN)
        drawn = {f"{each}/d{n}": drawn_job(random, f"d{n}", each) for n, each in enumerate(namespaces)}
        answers: dict[str, Sent] = {}

        async def submit(key: str) -> None:
            answers[key] = await it.submit(drawn[key])

        await for_each([*drawn], submit, at_once=AT_ONCE)
        taken = {key for key, sent in answers.items() if sent.status == 201}
        others = {sent.status for sent in answers.values()} - {201}
        assert others <= {403, 422}, others
        objects = await _objects(it, taken)
        stolen: list[str] = []

        async def judge(key: str) -> None:
            if not await _could_make(it, objects[key]):
                stolen.append(key)

        await for_each([*objects], judge, at_once=AT_ONCE)
    _log.info("jobs drawn=%d made=%d that the user could not have made=%d", DRAWN, len(objects), len(stolen))
    assert {*objects} <= taken
    assert stolen == []
    assert DRAWN / 10 < len(objects) < DRAWN / 2, len(objects)
    assert not [key for key in taken if key.partition("/")[0] in ("kube-system", HOME, it.places[-1].name)]


async def _objects(it: Submitting, taken: set[str]) -> dict[str, Object]:
    """Return the objects that voda made, by namespace/name, once it has tried all of them."""

    async def found() -> dict[str, Object]:
        listed: dict[str, Object] = {}
        for kind, (version, _, plural) in KINDS.items():
            for made in await it.world.client.list(Resource(kind, version, plural)):
                if "voda.dev/job-id" in made["metadata"].get("annotations", {}):
                    listed["/".join(client.key_of(made))] = {"apiVersion": version, "kind": kind, **made}
        return listed

    async def are_tried() -> bool:
        # Of some templates the API server makes no object at all.
        refused = {fact.job_id for fact in await it.it.facts(ActionFailed)}
        return {each.replace("/", "_") for each in taken} <= refused | {
            each.replace("/", "_") for each in await found()
        }

    await it.world.until_it_is(are_tried)
    return await found()


async def _could_make(it: Submitting, made: Object) -> bool:
    """Say whether the user may make an object, each of its pods, and read and be all that these name."""
    namespace, name = client.key_of(made)
    level = next(place.level for place in it.places if place.name == namespace)
    # A namespace without a label is to be as strict as one with `restricted`.
    at = namespace if level else it.places[0].name
    _, _, plural = KINDS[made["kind"]]
    metadata = {"name": f"{name}-again", "namespace": namespace}
    asked = {"apiVersion": made["apiVersion"], "kind": made["kind"], "metadata": metadata, "spec": made["spec"]}
    asked["spec"].pop("selector", None)
    may = [await it.may_make(Resource(made["kind"], made["apiVersion"], plural), _without_uids(asked))]
    for _, template in pod_templates(made):
        pod = {**template.get("metadata", {}), "name": name, "namespace": at}
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": pod,
            "spec": {"serviceAccountName": "default", **template["spec"]},
        }
        may.append(await it.may_make(client.PODS, body))
        # Found by their names alone, wherever in the template these are.
        said = json.dumps(template)
        named = {*secrets(template), *(each for each in SECRETS if f'"{each}"' in said)}
        may += [await it.may(namespace, "get", "secrets", each) for each in named]
        may += [
            await it.may(namespace, "create", "serviceaccounts", each, "token") for each in service_accounts(template)
        ]
    return all(may)


def _without_uids(job: Object) -> Object:
    """Return a Job without the labels that the server gave its template."""
    metadata = job["spec"].get("template", {}).get("metadata", {})
    metadata.pop("labels", None)
    return job


def a_theft(world: World, number: int) -> Object:
    """Return a job that would bring what is voda's or the node's."""
    template = a_harmless_template()
    spec = template["spec"]
    match number:
        case 0:
            spec["serviceAccountName"] = "voda"
        case 1:
            spec["volumes"] = [{"name": "access", "secret": {"secretName": "voda-access"}}]
        case 2:
            spec["volumes"] = [{"name": "root", "hostPath": {"path": "/"}}]
        case _:
            spec["hostPID"] = True
    return a_job(f"theft-{number}", f"{world.namespace}-bare", template)


@pytest.mark.parametrize(
    ("number", "status", "sentence"),
    [
        (0, 403, "user outsider may not create serviceaccounts/token 'voda' in namespace"),
        (1, 403, "user outsider may not get secrets 'voda-access' in namespace"),
        (2, 422, "spec.template.spec.volumes[0].hostPath: expected nothing, got"),
        (3, 422, "spec.template.spec.hostPID: expected nothing or false, got true"),
    ],
)
async def test_job_that_asks_for_more_than_is_the_users_is_refused_in_one_sentence(
    world: World, tmp_path: Path, number: int, status: int, sentence: str
) -> None:
    async with submitting(world, tmp_path / "home") as it:
        sent = await it.submit(a_theft(world, number))
        assert (sent.status, sentence in sent.said) == (status, True), sent
        assert (await it.submit(a_job("own", f"{world.namespace}-bare"))).status == 201


async def test_namespaces_are_those_where_the_user_may_make_jobs_and_never_the_clusters_nor_vodas_own(
    world: World, tmp_path: Path
) -> None:
    async with submitting(world, tmp_path / "home") as it:
        admin = (tmp_path / "home" / "admin.token").read_text().strip()
        closed = await it.submit(a_job("a", f"{world.namespace}-closed"))
        assert closed.status == 403
        assert f"user {USER} may not create jobs in namespace {world.namespace}-closed" in closed.said
        for namespace in ("kube-system", "kube-public", HOME):
            for token in (it.token, admin):
                sent = await it.submit(a_job("a", namespace), token)
                assert (sent.status, "the cluster's or voda's own" in sent.said) == (403, True), sent
        assert (await it.submit(a_job("b", f"{world.namespace}-closed"), admin)).status == 201


async def test_service_of_torchrun_needs_the_right_to_make_it(world: World, tmp_path: Path) -> None:
    async with submitting(world, tmp_path / "home") as it:
        template = a_harmless_template()
        template["spec"]["subdomain"] = "postgres"
        namespace = f"{world.namespace}-bare"
        sent = await it.submit(a_job("a", namespace, template))
        assert (sent.status, "may not create services" in sent.said) == (403, True), sent
        await allow(world, namespace, [{"apiGroups": [""], "resources": ["services"], "verbs": ["create"]}], "more")

        async def is_taken() -> bool:
            return (await it.submit(a_job("a", namespace, template))).status == 201

        await world.until_it_is(is_taken)


async def test_level_of_a_namespace_without_a_label_is_the_setting(world: World, tmp_path: Path) -> None:
    template = a_harmless_template()
    del template["spec"]["securityContext"]["runAsNonRoot"]
    async with submitting(world, tmp_path / "home", cluster={"podSecurity": "baseline", "defaultPool": ""}) as it:
        for place, status in ((f"{world.namespace}-bare", 201), (f"{world.namespace}-restricted", 422)):
            assert (await it.submit(a_job("a", place, template))).status == status
