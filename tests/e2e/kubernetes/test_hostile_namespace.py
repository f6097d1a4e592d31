"""A namespace whose people make whatever objects they like, with kubectl, beside an honest one."""

from collections import Counter
from pathlib import Path
from random import Random

import aiohttp

from tests.e2e.kubernetes.service import AT_ONCE, Voda, voda
from tests.kube import client as api
from tests.kube.client import Client, Object, Refused, Resource
from tests.kube.control_plane import OUTSIDER
from tests.kube.drawn_pods import drawn_template
from tests.kube.objects import GPU, a_pod, an_indexed_job
from tests.kube.peers.jobs_world import JobsWorld
from voda.events.types import JobSubmitted

QUOTAS = Resource("ResourceQuota", "v1", "resourcequotas")
JOBS_PER_USER = 3
EVIL_GPUS = 2
"""By a quota of its namespace: objects that voda does not take run as Kubernetes has it."""
STEPS = 120
HUGE = (10**9, 10**18, 2**63, -(10**9), 0, "x" * 50_000)
RULES = (
    {"apiGroups": ["batch"], "resources": ["*"], "verbs": ["*"]},
    {"apiGroups": [""], "resources": ["pods", "services", "events"], "verbs": ["*"]},
    {"apiGroups": ["voda.dev"], "resources": ["*"], "verbs": ["*"]},
)


class Hostile:
    """Somebody with all rights in a namespace."""

    def __init__(self, world: JobsWorld, who: Client, seed: int) -> None:
        self.namespace = f"{world.namespace}-evil"
        self.outcomes = Counter[str]()
        self._honest = world.namespace
        self._who = who
        self._chance = Random(seed)

    async def act(self) -> None:
        """Do one thing; whatever the API server says is taken."""
        name = f"evil-{self._chance.randrange(12)}"
        deeds = (self._make_job, self._make_job, self._make_pod, self._change, self._report, self._delete)
        try:
            await self._chance.choice(deeds)(name)
            self.outcomes["taken"] += 1
        except (Refused, aiohttp.ClientError):
            self.outcomes["refused"] += 1

    async def _make_job(self, name: str) -> None:
        chance = self._chance
        # Jobs that ask for nothing odd are taken, until they are changed.
        notes = self._notes() if chance.random() < 0.5 else {}
        job = an_indexed_job(name, self.namespace, chance.choice((1, 2, 4)), pool="v100", annotations=notes)
        if chance.random() < 0.5:
            job["spec"]["template"] = drawn_template(chance)
        if chance.random() < 0.3:
            job["metadata"]["labels"] |= self._labels()
        await self._who.create(api.JOBS, job)

    async def _make_pod(self, name: str) -> None:
        """Make a pod that looks like a worker of the honest job."""
        pod = a_pod(name, self.namespace, gpus=self._chance.choice((0, 1)), labels=self._labels())
        pod["metadata"]["annotations"] = self._notes()
        await self._who.create(api.PODS, pod)

    async def _change(self, name: str) -> None:
        patch: Object = {"metadata": {"annotations": self._notes(), "labels": self._labels()}}
        if self._chance.random() < 0.3:
            patch["spec"] = {"suspend": self._chance.random() < 0.5, "parallelism": self._chance.choice((0, 1, 100))}
        await self._who.patch(api.JOBS, (self.namespace, name), patch)

    async def _report(self, name: str) -> None:
        """Say of a job that it has ended, or is something else."""
        status = {"status": {"succeeded": 10, "active": -1 if self._chance.random() < 0.1 else 0}}
        await self._who.patch(api.JOBS, (self.namespace, name), status, "status")

    async def _delete(self, name: str) -> None:
        await self._who.delete(self._chance.choice((api.JOBS, api.PODS)), name, self.namespace)

    def _notes(self) -> dict[str, str]:
        drawn = {
            "user": self._chance.choice((self._honest, "admin", "", "x" * 300)),
            "job-id": f"{self._honest}_honest",
            "virtual-cluster": "vision",
            "name": "honest",
            "after": "honest",
            **{each: str(self._chance.choice(HUGE)) for each in ("priority", "epochs", "min-replicas", "max-replicas")},
        }
        return {f"voda.dev/{each}": value for each, value in drawn.items() if self._chance.random() < 0.25}

    def _labels(self) -> dict[str, str]:
        drawn = {
            "voda.dev/job-id": f"{self._honest}_honest",
            "batch.kubernetes.io/job-name": "honest",
            "job-name": "honest",
            "batch.kubernetes.io/job-completion-index": "0",
        }
        return {"voda.dev/managed": "true"} | {
            each: value for each, value in drawn.items() if self._chance.random() < 0.5
        }


async def test_what_a_hostile_namespace_makes_takes_nothing_from_an_honest_one(
    jobs_world: JobsWorld, tmp_path: Path
) -> None:
    world = jobs_world
    await world.add_node("gpu-1", gpus=2 + 1 + EVIL_GPUS)
    namespace = f"{world.namespace}-evil"
    await world.add_namespace(namespace)
    metadata = {"name": "all", "namespace": namespace}
    hard = {f"requests.{GPU}": str(EVIL_GPUS)}
    await world.client.create(QUOTAS, {"metadata": metadata, "spec": {"hard": hard}})
    subject = {"kind": "User", "name": "outsider", "apiGroup": "rbac.authorization.k8s.io"}
    role = {"kind": "Role", "name": "all", "apiGroup": "rbac.authorization.k8s.io"}
    await world.client.create(api.ROLES, {"metadata": metadata, "rules": list(RULES)})
    await world.client.create(api.ROLE_BINDINGS, {"metadata": metadata, "roleRef": role, "subjects": [subject]})
    pools = {"v100": dict(AT_ONCE)}
    async with (
        voda(world, tmp_path, pools=pools, jobsPerUser=JOBS_PER_USER) as it,
        Client(world.plane, OUTSIDER) as who,
    ):
        await world.submit(an_indexed_job("honest", world.namespace, 2, least=2, most=2, pool="v100", priority=1000))
        await it.until_runs("honest", 2)
        hostile = Hostile(world, who, seed=27)
        for _ in range(STEPS):
            await hostile.act()
            assert it.service.failure() == ""
        assert min(hostile.outcomes.values()) > STEPS / 20, hostile.outcomes
        # Somebody honest who comes now is served, and the one who was there has lost nothing.
        await world.submit(an_indexed_job("later", world.namespace, 1, least=1, most=1, pool="v100", priority=1000))
        await it.until_runs("later", 1)
        await it.until_runs("honest", 2)
        for name in ("honest", "later"):
            for pod in await world.running_workers(name):
                await world.kubelet.exit(world.namespace, pod)
            await it.until_ended(name, "Completed")
            assert it.record(name).job.restarts == 0
        await _refuse_others_users(it, namespace)


async def _refuse_others_users(it: Voda, namespace: str) -> None:
    """Check that all jobs of the hostile namespace are its own, and were never more than one user may have."""
    submitted = [fact.spec for fact in await it.facts(JobSubmitted)]
    hostile = {spec.job_id: spec.user for spec in submitted if spec.namespace == namespace}
    assert hostile, "nothing of the hostile namespace was taken"
    assert {*hostile.values()} == {namespace}
    live = [job_id for job_id in hostile if it.job(job_id) is not None]
    assert len(live) <= JOBS_PER_USER
