"""What can happen to a cluster and to voda, drawn from a seed; then a calm in which everything must come right.

Rule: whatever is broken for good is not drawn: once the calm begins, every job that nobody ended can run.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, Final

from tests.kube.client import MPIJOBS, MPIJOBS_V1, NODES, PODS, PYTORCHJOBS, Object, Refused, Resource, key_of
from tests.kube.memory_api import Wire
from tests.kube.memory_world import POOL, MemoryWorld, Replica, job_of
from tests.kube.mirrored import is_mirrored
from tests.kube.objects import a_node, a_pod, a_pytorchjob, an_mpijob, an_mpijob_v1
from tests.kube.operators.base import JOB_NAME
from tests.kube.operators.status import has_condition
from tests.kube.world import is_launcher, is_leaving
from tests.virtual_time import now_s
from voda.auth.callers import Caller
from voda.domain.errors import VodaError
from voda.domain.job import Job
from voda.domain.reasons.requests import Requested
from voda.domain.rng import rng_at
from voda.events.envelope import ANY_VERSION, Fact
from voda.events.types import AnyFact, JobCancelRequested, SettingsChanged
from voda.timetravel.verify import verify

CALM_S: Final = 1_500.0
"""Longer than any backoff, any grace and any refusal lasts."""
_NODES: Final = 4
_GPUS: Final = 4
_MOST_JOBS: Final = 6
_POLICIES: Final = ("elastic-fifo", "elastic-tiresias", "elastic-srjf", "afs-l")
_FOREVER: Final = {"backoffLimit": 10_000}


class Upheaval:
    """See the module.

    Args:
        world: empty.
        seed: of what happens.
    """

    def __init__(self, world: MemoryWorld, seed: int) -> None:
        self.world = world
        self.told: list[str] = []
        """What happened, for whoever has to find out."""
        self._chance = rng_at(seed, "upheaval")
        self._replica: Replica | None = None
        self._kinds = [operator.resource for operator in world.operators]
        self._jobs: dict[str, Resource] = {}
        """Name -> kind."""
        self._ended: dict[str, set[str]] = {}
        """Name -> phases in which the job may end."""
        self._wires = 0
        self._away: set[str] = set()
        """Nodes that are deleted."""
        self._foreign = 0

    async def __aenter__(self) -> "Upheaval":
        for index in range(_NODES):
            await self.world.add_nodes(a_node(f"n{index}", _GPUS, POOL))
        await self._replace(self._end_gently)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._end_gently()

    # ---- what happens

    async def rage(self, events: int) -> None:
        """Let so many things happen."""
        happenings: list[tuple[int, Callable[[], Awaitable[None]]]] = [
            (8, self._submit),
            (3, self._submit_to_the_api),
            (2, self._cancel),
            (2, self._delete_job),
            (3, self._finish_any),
            (4, self._scale_by_hand),
            (3, self._suspend_by_hand),
            (5, self._evict),
            (3, self._evict_launcher),
            (2, self._change_policy),
            (5, self._fail),
            (5, self._delete_pod),
            (4, self._cordon),
            (4, self._lose_node),
            (4, self._remove_node),
            (4, self._foreign_pod),
            (3, self._outage),
            (3, self._cut),
            (2, lambda: self._replace(self._kill)),
            (2, lambda: self._replace(self._end_gently)),
        ]
        weights, acts = zip(*happenings, strict=True)
        for _ in range(events):
            [act] = self._chance.choices(acts, weights)
            # What is hit may just have gone.
            with suppress(Refused, AssertionError):
                await act()
            await asyncio.sleep(self._chance.choice([0.02, 0.1, 0.5, 2.0, 10.0]) * self._chance.random())
            self._check()

    async def calm(self) -> None:
        """End all trouble, and wait until the cluster is as planned."""
        self._note("calm")
        self._service_wire.is_down, self._service_wire.loses = False, 0.0
        for index in range(_NODES):
            await self._revive(f"n{index}")
        for pod in [pod for pod in self._pods() if not pod["metadata"].get("labels", {}).get(JOB_NAME)]:
            await self._delete(pod)
        await self._happens(SettingsChanged(pool=POOL, settings={"policy": _POLICIES[0]}))
        await self._until(self._is_as_planned)
        await self._until(lambda: is_mirrored(self._leader.service))

    async def finish(self) -> None:
        """End all jobs well, and wait until nothing of them is left at work."""

        async def are_done() -> bool:
            for name in list(self._jobs):
                await self._finish(name)
            return not self._live() and all(map(_is_over, self.world.workers()))

        self._note("finish")
        await self._until(are_done)
        await self._until(lambda: is_mirrored(self._leader.service))
        verdict = await verify(self.world.store)
        assert verdict.difference is None, verdict.difference

    # ---- jobs

    async def _submit(self) -> None:
        job, name = self._a_job()
        if job is not None:
            self._note(f"submit {name} {job['kind']} {job['metadata']['annotations']}")
            await self.world.submit(job)

    async def _submit_to_the_api(self) -> None:
        job, name = self._a_job()
        if job is not None:
            self._note(f"submit to the API {name} {job['kind']} {job['metadata']['annotations']}")
            backend = self._leader.service.backend
            try:
                await backend.submits.submit(job, Caller(user="ann", role="user"))
            except VodaError as error:
                # A replica that has only just begun takes no jobs.
                self._note(f"refused: {error}")
                self._ended[name].add("Canceled")

    def _a_job(self) -> tuple[Object | None, str]:
        chance, name = self._chance, f"job-{len(self._jobs)}"
        if sum(not self._ended[each] for each in self._jobs) >= _MOST_JOBS:
            return None, name
        kind, least = chance.choice(self._kinds), chance.randint(1, 3)
        most = least + chance.choice([0, 1, 4])
        wishes: dict[str, Any] = {
            "least": least,
            "most": most,
            "gpus": chance.choice([1, 1, 2]),
            "pool": POOL,
            "policy": _FOREVER,
        }
        if kind == MPIJOBS_V1 or chance.random() < 0.5:
            # While voda is away, others would run the pods of a job that does not wait; a failure of v1 is final.
            wishes["suspend"] = True
        make = {MPIJOBS: an_mpijob, MPIJOBS_V1: an_mpijob_v1, PYTORCHJOBS: a_pytorchjob}[kind]
        self._jobs[name], self._ended[name] = kind, set()
        return make(name, self.world.namespace, chance.randint(least, most), **wishes), name

    async def _cancel(self) -> None:
        if live := self._live():
            job_id, job = self._chance.choice(sorted(live.items()))
            self._note(f"cancel {job_id}")
            self._ended[job.spec.name].add("Canceled")
            await self._happens(JobCancelRequested(job_id=job_id, reason=Requested(text="test")))

    async def _change_policy(self) -> None:
        policy = self._chance.choice(_POLICIES)
        self._note(f"policy {policy}")
        await self._happens(SettingsChanged(pool=POOL, settings={"policy": policy}))

    async def _happens(self, data: AnyFact) -> None:
        clock = self._leader.service.clock
        fact = Fact(data=data, event_id=clock.new_id(), recorded_at=clock.now(), actor="test")
        await self.world.store.append(data.stream, ANY_VERSION, [fact])

    async def _delete_job(self) -> None:
        if name := self._any_job():
            self._note(f"delete {name}")
            self._ended[name].add("Canceled")
            await self.world.client.delete(self._jobs[name], name, self.world.namespace)

    async def _finish_any(self) -> None:
        if name := self._any_job():
            await self._finish(name)

    async def _finish(self, name: str) -> None:
        pods = [pod for pod in self._pods_of(name) if pod["status"]["phase"] == "Running" and not is_leaving(pod)]
        if self._jobs[name] != PYTORCHJOBS:
            pods = [pod for pod in pods if is_launcher(pod)]
        for pod in pods:
            self._note(f"finish {pod['metadata']['name']}")
            self._ended[name].add("Completed")
            with suppress(AssertionError, Refused):
                await self.world.kubelet.exit(self.world.namespace, pod["metadata"]["name"])

    async def _scale_by_hand(self) -> None:
        if name := self._any_job():
            size, kind = self._chance.randint(1, 6), self._jobs[name]
            specs = "pytorchReplicaSpecs" if kind == PYTORCHJOBS else "mpiReplicaSpecs"
            self._note(f"scale {name} to {size}")
            await self._patch_job(name, {specs: {"Worker": {"replicas": size}}})

    async def _suspend_by_hand(self) -> None:
        if name := self._any_job():
            suspend = self._chance.random() < 0.5
            self._note(f"suspend {name}: {suspend}")
            await self._patch_job(name, {"runPolicy": {"suspend": suspend}})

    async def _patch_job(self, name: str, spec: Object) -> None:
        await self.world.client.patch(self._jobs[name], (self.world.namespace, name), {"spec": spec})

    # ---- pods

    async def _evict(self) -> None:
        if pod := self._any_worker():
            self._note(f"evict {pod['metadata']['name']}")
            await self.world.kubelet.evict(*key_of(pod))

    async def _evict_launcher(self) -> None:
        if pods := [pod for pod in self._pods() if is_launcher(pod) and pod["status"]["phase"] == "Running"]:
            pod = self._chance.choice(pods)
            self._note(f"evict {pod['metadata']['name']}")
            await self.world.kubelet.evict(*key_of(pod))

    async def _fail(self) -> None:
        if pod := self._any_worker():
            self._note(f"fail {pod['metadata']['name']}")
            await self.world.kubelet.exit(*key_of(pod), 139)

    async def _delete_pod(self) -> None:
        if pods := [pod for pod in self._pods() if not is_leaving(pod)]:
            pod = self._chance.choice(pods)
            self._note(f"delete pod {pod['metadata']['name']}")
            await self._delete(pod)

    async def _delete(self, pod: Object) -> None:
        namespace, name = key_of(pod)
        await self.world.client.delete(PODS, name, namespace)

    async def _foreign_pod(self) -> None:
        self._foreign += 1
        gpus = self._chance.randint(1, 3)
        self._note(f"foreign pod of {gpus} GPUs")
        await self.world.client.create(PODS, a_pod(f"foreign-{self._foreign}", "default", gpus=gpus))

    # ---- nodes

    async def _cordon(self) -> None:
        node = self._any_node()
        is_cordoned = self._chance.random() < 0.5
        self._note(f"cordon {node}: {is_cordoned}")
        await self.world.cordon(node, is_cordoned)

    async def _lose_node(self) -> None:
        node = self._any_node()
        if self._chance.random() < 0.5:
            self._note(f"silent {node}")
            self.world.kubelet.lose(node)
            await self.world.set_ready(node, False)
        else:
            await self._revive(node)

    async def _remove_node(self) -> None:
        node = self._any_node()
        if node in self._away:
            await self._revive(node)
        else:
            self._note(f"remove {node}")
            self._away.add(node)
            await self.world.remove_node(node)

    async def _revive(self, node: str) -> None:
        self._note(f"revive {node}")
        self.world.kubelet.restore(node)
        if ("", node) not in self.world.server.objects[NODES]:
            await self.world.add_nodes(a_node(node, _GPUS, POOL))
        self._away.discard(node)
        await self.world.set_ready(node, True)
        await self.world.cordon(node, False)

    def _any_node(self) -> str:
        return f"n{self._chance.randrange(_NODES)}"

    # ---- voda, and its way to the server

    async def _outage(self) -> None:
        span_s = self._chance.choice([0.5, 3.0, 25.0])
        self._note(f"outage of {span_s} s")
        wire = self._service_wire
        wire.is_down = True
        self.world.server.cut()
        await asyncio.sleep(span_s)
        wire.is_down = False

    async def _cut(self) -> None:
        self._note("cut")
        self.world.server.cut(forgets=self._chance.random() < 0.5)

    async def _replace(self, end: Callable[[], Awaitable[None]]) -> None:
        self._note(f"replace by {end.__name__}")
        await end()
        self._wires += 1
        wire = Wire(self._chance.randrange(10**9), longest_s=0.05, loses=0.02, throttles=0.01)
        self._replica = self.world.replica(wire)
        await self._replica.__aenter__()

    async def _kill(self) -> None:
        await self._leader.kill()

    async def _end_gently(self) -> None:
        if self._replica is not None:
            await self._replica.stop()

    @property
    def _leader(self) -> Replica:
        assert self._replica is not None
        return self._replica

    @property
    def _service_wire(self) -> Wire:
        return self._leader.wire

    # ---- what there is

    def _live(self) -> dict[str, Job]:
        return dict(self._leader.service.jobs.by_id())

    def _any_job(self) -> str:
        there = [name for name, kind in self._jobs.items() if self._object(name) is not None]
        return self._chance.choice(there) if there else ""

    def _object(self, name: str) -> Object | None:
        return self.world.server.objects[self._jobs[name]].get((self.world.namespace, name))

    def _pods(self) -> Sequence[Object]:
        return sorted(self.world.server.objects[PODS].values(), key=lambda pod: str(pod["metadata"]["name"]))

    def _pods_of(self, name: str) -> Sequence[Object]:
        return [pod for pod in self._pods() if pod["metadata"].get("labels", {}).get(JOB_NAME) == name]

    def _any_worker(self) -> Object | None:
        pods = [pod for pod in self._pods() if job_of(pod) and pod["status"]["phase"] == "Running"]
        return self._chance.choice(pods) if pods else None

    async def _is_as_planned(self) -> bool:
        """Say whether every job that nobody ended is there, and has the workers that are planned; all of them run."""
        live = self._live()
        # What an ended job leaves for others to read holds nothing.
        pods = [pod for pod in self.world.workers() if job_of(pod) in live or not _is_over(pod)]
        names = {job.spec.name for job in live.values()}
        if any(name not in names and not self._may_be_over(name) for name in self._jobs):
            return False
        planned = dict(self._leader.service.view.cluster.state(POOL).plan.placement)
        shown: dict[str, list[str]] = {}
        for pod in pods:
            shown.setdefault(job_of(pod), []).append(pod["spec"].get("nodeName", ""))
        for job_id, job in live.items():
            wanted = planned.get(job_id, ())
            if [job.workers.get(index) for index in range(job.replicas)] != list(wanted):
                return False
            if sorted(shown.get(job_id, ())) != sorted(wanted):
                return False
        running = all(pod["status"]["phase"] == "Running" and not is_leaving(pod) for pod in pods)
        return running and bool(planned or not live) and shown.keys() <= live.keys()

    def _may_be_over(self, name: str) -> bool:
        """Say whether a job may have ended; one that ended before voda had a look at it is none of its jobs."""
        found = self._object(name)
        is_unknown = self._leader.service.view.job_registry.job(f"{self.world.namespace}_{name}") is None
        return bool(self._ended[name]) or (
            is_unknown and found is not None and has_condition(found.get("status", {}), "Failed")
        )

    def _check(self) -> None:
        """Fail if something was seen that must never be."""
        assert not self.world.breaches.found, self.world.breaches.found[0]
        self._leader.check()
        job_registry = self._leader.service.view.job_registry
        for name, may_end in self._ended.items():
            record = job_registry.job(f"{self.world.namespace}_{name}")
            assert record is None or record.is_live or record.phase in may_end, f"{name} ended: {record}"

    async def _until(self, holds: Callable[[], Awaitable[bool]]) -> None:
        end = now_s() + CALM_S
        while not await holds():
            self._check()
            assert now_s() < end, "it never came right"
            await asyncio.sleep(1.0)
        self._check()

    def _note(self, what: str) -> None:
        self.told.append(f"{now_s():.2f} {what}")


def _is_over(pod: Object) -> bool:
    return pod["status"]["phase"] in ("Succeeded", "Failed")
