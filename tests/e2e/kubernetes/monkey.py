"""Somebody who does at random what users, nodes and machines do to a cluster and to the replicas of voda on it.

Rule: chance comes from one seed; what was asked for and what came of the asking is written down, so that in the end
it is known which jobs must be there.
"""

import asyncio
import random
import signal
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.e2e.kubernetes.replica import Replica
from tests.e2e.kubernetes.submissions import AWAY, Submission, a_submission, answer_of, id_of
from tests.kube import client as api
from tests.kube.client import Object, Refused, Resource
from tests.kube.kubelet import RUNS_FOR_S
from tests.kube.objects import MANAGED, a_node, a_pod
from tests.kube.world import World

_MOST_JOBS: Final = 10
"""Live at a time."""
_MOST_NODES: Final = 5
_RETRY_S: Final = 0.2


@dataclass
class Monkey:
    """See the module."""

    world: World
    folder: Path
    log: str
    seed: int
    submissions: list[Submission] = field(default_factory=list)
    replicas: list[Replica] = field(default_factory=list)
    frozen: list[Replica] = field(default_factory=list)
    nodes: list[str] = field(default_factory=list)
    diary: list[str] = field(default_factory=list)
    overfull: list[str] = field(default_factory=list)
    """Nodes that were seen with more workers than they have GPUs, and what was there."""

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)
        self._numbers = iter(range(1, 100_000))

    # ---- the replicas

    def start(self) -> None:
        """Start one more replica."""
        number = next(self._numbers)
        leader = {"leaseSeconds": 2.0, "renewSeconds": 1.5, "retrySeconds": 0.2}
        settings = {"leader": {"namespace": self.world.namespace, **leader}}
        self.replicas.append(Replica(self.world, self.folder / f"replica-{number}", self.log, settings=settings))

    def end(self) -> None:
        """Kill all that is left."""
        for replica in (*self.replicas, *self.frozen):
            replica.kill()

    async def tend(self) -> None:
        """Replace replicas that ended, as a Deployment does; one that ended by itself with an error is a failure."""
        for replica in list(self.replicas):
            if replica.is_over():
                self.replicas.remove(replica)
                code = replica.process.returncode
                assert code in (0, -signal.SIGKILL), f"a replica ended with {code}:\n{replica.text[-6000:]}"
        while len(self.replicas) < 2:
            self.start()

    # ---- what it does

    async def begin(self) -> None:
        """Make the cluster and two replicas."""
        launchers = a_node("launchers", 0, "", labels={"role": "launchers"})
        await self.world.add_nodes(launchers)
        for _ in range(3):
            await self.add_node()
        await self.tend()

    async def act(self) -> None:
        """Do one thing, whatever comes of it, and wait for a moment."""
        doings: Sequence[tuple[int, Callable[[], Awaitable[str]]]] = (
            (10, self.create),
            (8, self.submit),
            (4, self.delete),
            (3, self.cancel),
            (4, self.scale),
            (3, self.suspend),
            (3, self.evict),
            (3, self.fail),
            (3, self.remove_worker),
            (3, self.cordon),
            (2, self.unready),
            (3, self.add_node),
            (2, self.remove_node),
            (2, self.disturb),
            (4, self.kill),
            (2, self.terminate),
            (2, self.freeze),
        )
        [doing] = self.chance.choices([each for _, each in doings], [weight for weight, _ in doings])
        pause_s = self.chance.choice((0.0, 0.05, 0.3, 1.0, 2.0))
        try:
            what = await doing()
        except (Refused, *AWAY) as error:
            what = f"in vain: {error!r}"
        self.diary.append(f"{doing.__name__} {what}")
        await asyncio.sleep(pause_s)
        await self.tend()

    async def create(self) -> str:
        """Create an object by kubectl."""
        if self._is_crowded():
            return "(enough)"
        job, submission = a_submission(self.chance, self.world.namespace)
        # Else a program may end before anybody leads, and its job is none that voda had to run.
        if submission.ends or self.chance.random() < 0.3:
            job["spec"].setdefault("runPolicy", {})["suspend"] = True
        made = await self.world.submit(job)
        submission.uid = made["metadata"]["uid"]
        self.submissions.append(submission)
        return f"{submission.name} {submission.uid}"

    async def submit(self) -> str:
        """Submit a job to the API, at times by both replicas at once."""
        if self._is_crowded():
            return "(enough)"
        job, submission = a_submission(self.chance, self.world.namespace)
        key, is_doubled = f"{self.seed}-{next(self._numbers)}", self.chance.random() < 0.4
        asked = [self._submitted(job, key) for _ in range(2 if is_doubled else 1)]
        answers = [answer for answer in await asyncio.gather(*asked) if answer]
        assert len(set(answers)) <= 1, f"one key made {answers}"
        if not answers:
            return f"{submission.name} refused"
        submission.job_id = answers[0]
        self.submissions.append(submission)
        return f"{submission.name} {answers}"

    async def delete(self) -> str:
        """Delete a job's object."""
        resource, found = await self._object()
        name, uid, job_id = found["metadata"]["name"], found["metadata"]["uid"], id_of(found)
        submissions = [
            submission
            for submission in self.submissions
            if submission.uid == uid or (job_id and submission.job_id == job_id)
        ]
        for submission in submissions:
            # Where there is no answer, it is deleted or not.
            submission.is_doubtful = True
        await self.world.client.delete(resource, name, self.world.namespace, uid=uid)
        for submission in submissions:
            submission.is_unwanted = True
        return f"{name} {uid}"

    async def cancel(self) -> str:
        """Cancel a job by the API."""
        wanted = [submission for submission in self.submissions if submission.job_id and not submission.is_unwanted]
        if not wanted:
            return "(none)"
        submission = self.chance.choice(wanted)
        submission.is_unwanted = True
        await self._ask("DELETE", f"/api/v1/jobs/@{submission.job_id}")
        return submission.job_id

    async def scale(self) -> str:
        """Change a job's size by hand."""
        resource, found = await self._object()
        size = self.chance.randint(1, 5)
        specs = "mpiReplicaSpecs" if resource is api.MPIJOBS else "pytorchReplicaSpecs"
        return await self._change(resource, found, {specs: {"Worker": {"replicas": size}}})

    async def suspend(self) -> str:
        """Suspend a job by hand, or let it go."""
        resource, found = await self._object()
        return await self._change(resource, found, {"runPolicy": {"suspend": self.chance.random() < 0.5}})

    async def evict(self) -> str:
        """Evict a worker."""
        pod = await self._worker()
        await self.world.kubelet.evict(self.world.namespace, pod)
        return pod

    async def fail(self) -> str:
        """Let a worker's program fail."""
        pod = await self._worker()
        with suppress(AssertionError):
            await self.world.kubelet.exit(self.world.namespace, pod, 3)
        return pod

    async def remove_worker(self) -> str:
        """Delete a worker's pod."""
        pod = await self._worker()
        await self.world.client.delete(api.PODS, pod, self.world.namespace)
        return pod

    async def cordon(self) -> str:
        """Cordon a node, or let it be used again."""
        node, is_cordoned = self.chance.choice(self.nodes), self.chance.random() < 0.5
        await self.world.cordon(node, is_cordoned)
        return f"{node} {is_cordoned}"

    async def unready(self) -> str:
        """Let a node fall silent, or come back."""
        node, is_ready = self.chance.choice(self.nodes), self.chance.random() < 0.5
        await self.world.set_ready(node, is_ready)
        return f"{node} {is_ready}"

    async def add_node(self) -> str:
        """Let a machine join."""
        if len(self.nodes) >= _MOST_NODES:
            return "(enough)"
        name = f"gpu-{next(self._numbers)}"
        await self.world.add_node(name, gpus=self.chance.choice((2, 4)))
        self.nodes.append(name)
        return name

    async def remove_node(self) -> str:
        """Let a machine vanish without warning."""
        if len(self.nodes) < 2:
            return "(too few)"
        node = self.chance.choice(self.nodes)
        self.nodes.remove(node)
        await self.world.remove_node(node)
        return node

    async def disturb(self) -> str:
        """Let somebody else's pod take a GPU for some seconds."""
        name = f"other-{next(self._numbers)}"
        pod = a_pod(name, self.world.namespace, gpus=1, annotations={RUNS_FOR_S: "4"}, spec={"restartPolicy": "Never"})
        await self.world.client.create(api.PODS, pod)
        return name

    async def kill(self) -> str:
        """Kill a replica, most often the leader."""
        replica = self._replica()
        replica.kill()
        return replica.folder.name

    async def terminate(self) -> str:
        """Tell a replica to end."""
        replica = self._replica()
        replica.terminate()
        self.replicas.remove(replica)
        self.frozen.append(replica)
        return replica.folder.name

    async def freeze(self) -> str:
        """Let a replica stand still for longer than it may lead, and go on as if nothing had happened."""
        replica = self._replica()
        if replica.is_over():
            return "(over)"
        replica.process.send_signal(signal.SIGSTOP)
        await asyncio.sleep(self.chance.choice((1.0, 3.0)))
        replica.process.send_signal(signal.SIGCONT)
        return replica.folder.name

    async def restart_api_server(self) -> None:
        """Let the API server be away for some seconds."""
        self.diary.append("restart_api_server")
        await asyncio.to_thread(self.world.plane.interrupt_api_server, 1.0)

    async def calm(self) -> None:
        """Make good again what stands in the way of jobs: there is room for all of them."""
        for node in self.nodes:
            await self.world.cordon(node, False)
            await self.world.set_ready(node, True)
        for _ in range(6):
            name = f"gpu-{next(self._numbers)}"
            await self.world.add_node(name, gpus=4)
            self.nodes.append(name)

    async def look(self) -> None:
        """Look for ever for nodes that have more workers than GPUs."""
        while True:
            with suppress(Refused, *AWAY):
                self.overfull += await self._overfull()
            await asyncio.sleep(0.1)

    # ---- inside

    async def _overfull(self) -> list[str]:
        # Pods first: a node that went between is not looked at.
        pods = await self.world.client.list(api.PODS, self.world.namespace)
        nodes = {node["metadata"]["name"]: node for node in await self.world.client.list(api.NODES)}
        held: dict[str, list[str]] = {}
        for pod in pods:
            if _is_worker(pod) and pod["status"].get("phase") in ("Pending", "Running"):
                held.setdefault(pod["spec"].get("nodeName", ""), []).append(pod["metadata"]["name"])
        return [
            f"{node} after {self.diary[-1:]}: {names}"
            for node, names in held.items()
            if node in nodes and len(names) > int(nodes[node]["status"]["allocatable"].get("nvidia.com/gpu", "0"))
        ]

    def _is_crowded(self) -> bool:
        return sum(not submission.is_unwanted and not submission.ends for submission in self.submissions) >= _MOST_JOBS

    def _replica(self) -> Replica:
        leaders = [replica for replica in self.replicas if replica.leads]
        return self.chance.choice(leaders if leaders and self.chance.random() < 0.8 else self.replicas)

    async def _object(self) -> tuple[Resource, Object]:
        found = [
            (resource, each)
            for resource in (api.MPIJOBS, api.PYTORCHJOBS)
            for each in await self.world.client.list(resource, self.world.namespace)
        ]
        if not found:
            raise Refused(404, "", "there are no jobs")
        return self.chance.choice(found)

    async def _worker(self) -> str:
        pods = await self.world.client.list(api.PODS, self.world.namespace)
        running = [
            str(pod["metadata"]["name"]) for pod in pods if _is_worker(pod) and pod["status"].get("phase") == "Running"
        ]
        if not running:
            raise Refused(404, "", "there are no workers")
        return self.chance.choice(sorted(running))

    async def _change(self, resource: Resource, found: Object, spec: Object) -> str:
        meta = found["metadata"]
        body = {"metadata": {"uid": meta["uid"]}, "spec": spec}
        await self.world.client.patch(resource, (self.world.namespace, meta["name"]), body)
        return f"{meta['name']} {spec}"

    async def _submitted(self, job: Object, key: str) -> str:
        answer = await self._ask("POST", "/api/v1/jobs", job, key)
        return str(answer["job"]["job_id"]) if answer else ""

    async def _ask(self, method: str, path: str, body: object = None, key: str = "") -> Any:
        """Ask any replica until one answers; None: it refuses."""
        while True:
            await self.tend()
            serving = [replica for replica in self.replicas if replica.url]
            answer = await answer_of(self.chance.choice(serving).url, method, path, body, key) if serving else None
            if answer is not None and answer[0] < 500 and answer[0] != 429:
                return answer[1] if answer[0] < 300 else None
            await asyncio.sleep(_RETRY_S)


def _is_worker(pod: Object) -> bool:
    return MANAGED in pod["metadata"].get("labels", {})
