"""Does the steps, on a real cluster: what users, administrators, kubelets and crashes do.

Rule: a step whose target is not there, or whose API server is away, does nothing; it never waits for what comes of it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import aiohttp

from tests.e2e.kubernetes.replica import Replica
from tests.kube import client as api
from tests.kube.assets import IS_OLD
from tests.kube.client import Object, Refused, Resource, controller_of
from tests.kube.objects import (
    a_jobset,
    a_node,
    a_pod,
    a_pytorchjob,
    a_training_runtime,
    a_trainjob,
    an_indexed_job,
    an_mpijob,
)
from tests.kube.operators.base import JOB_NAME, phase_of
from tests.kube.peers import jobs_world
from tests.kube.peers.jobset import OF_JOBSET
from tests.kube.peers.world import PeeredWorld
from tests.kube.world import is_launcher, is_leaving
from tests.monkey import claims
from tests.monkey.invariants import GATE, Scene
from tests.monkey.steps import GPUS, JobShape, Step, node_names
from tests.ports import free_port

SETTINGS: Final[Mapping[str, Any]] = {"pools": {"v100": {"ratelimitSeconds": 0.0, "nodeGraceSeconds": 3.0}}}
_KINDS: Final[Mapping[str, Resource]] = {
    each.kind: each for each in (api.MPIJOBS, api.PYTORCHJOBS, api.TRAINJOBS, api.JOBSETS, api.JOBS)
}
_LEADER: Final = {"leaseSeconds": 4.0, "renewSeconds": 3.0, "retrySeconds": 0.3}
_AWAY: Final = (Refused, aiohttp.ClientError, TimeoutError, OSError)
_STEP_S: Final = 60.0
_PROGRAM: Final = ("-m", "tests.monkey.served")
_RUNTIME: Final = "torch"
"""Of TrainJobs."""
_RETRIED: Final[Mapping[str, Any]] = {"backoffLimit": 1_000}


class Hands:
    """See the module.

    Args:
        world: empty.
        folder: of voda's log, and of what it says.
        has_claims: whether GPUs are devices that are claimed.
    """

    def __init__(self, world: PeeredWorld, folder: Path, *, has_claims: bool = False) -> None:
        self.world = world
        self.has_claims = has_claims
        self.folder = folder
        self.log = folder / "voda.db"
        self.port = 0
        self._kinds: dict[str, Resource] = {}
        """Name of a job -> kind."""
        self._starts = 0
        self.voda = self._start_voda()

    async def begin(self) -> None:
        """Make the nodes, and what TrainJobs are made by."""
        launchers = a_node("launchers", 0, "", labels={"role": "launchers"})
        await self.world.add_nodes(launchers)
        made: Iterable[tuple[Resource, Object]] = claims.objects(self.world.namespace, _RUNTIME, _RETRIED)
        if not self.has_claims:
            made = [(api.RUNTIMES, a_training_runtime(_RUNTIME, self.world.namespace, job=_RETRIED))]
        for resource, body in made:
            await self.world.client.create(resource, body)
        for name in node_names():
            await self._add(name)

    async def do(self, step: Step) -> str:
        """Do one thing; return why it was in vain, empty where it was not."""
        try:
            async with asyncio.timeout(_STEP_S):
                await getattr(self, step.act)(step)
        except _AWAY as error:
            return str(error) or type(error).__name__
        return ""

    async def scene(self) -> Scene:
        """Return what is there now."""
        client, namespace = self.world.client, self.world.namespace
        objects: list[Object] = []
        for kind, resource in _KINDS.items():
            objects += [{**each, "kind": kind} for each in await client.list(resource, namespace)]
        nodes, pods, slices, held = [await client.list(each) for each in (api.NODES, api.PODS, api.SLICES, api.CLAIMS)]
        rules = () if IS_OLD else await client.list(api.TAINT_RULES)
        return Scene(nodes=nodes, pods=pods, objects=objects, slices=slices, claims=held, rules=rules)

    async def calm(self) -> None:
        """Make good again what stands in the way of jobs."""
        for name in node_names():
            await self._restore(name)
        for pod in await self.world.client.list(api.PODS, "default"):
            await self.world.client.delete(api.PODS, pod["metadata"]["name"], "default")

    async def finish_all(self) -> None:
        """End the programs of all jobs, as far as they run."""
        for name in self._kinds:
            with suppress(*_AWAY):
                await self.finish(Step("finish", name))

    # ---- users

    async def submit(self, step: Step) -> None:
        """Create a job's object, suspended."""
        shape = step.shape
        assert shape is not None
        asked = (
            claims.job_fields(shape.gpus, _RUNTIME) if self.has_claims else {"gpus": shape.gpus, "runtime": _RUNTIME}
        )
        job = _manifest(step.target, self.world.namespace, shape, asked)
        await self.world.client.create(_KINDS[shape.kind], job)
        self._kinds[step.target] = _KINDS[shape.kind]

    async def finish(self, step: Step) -> None:
        """End the programs of a job well: its launcher's, or all that run."""
        running = [pod for pod in await self._pods(step.target) if phase_of(pod) == "Running" and not is_leaving(pod)]
        launchers = [pod for pod in running if is_launcher(pod)]
        is_mpi = self._kinds.get(step.target) == api.MPIJOBS
        await self._exit(launchers if is_mpi else running, 0)

    async def fail(self, step: Step) -> None:
        """Let one worker's program fail."""
        await self._exit(await self._chosen(step, lambda pod: phase_of(pod) == "Running" and not is_leaving(pod)), 3)

    async def delete_job(self, step: Step) -> None:
        """Delete a job's object."""
        if (resource := self._kinds.get(step.target)) is not None:
            await self.world.client.delete(resource, step.target, self.world.namespace)

    async def delete_pod(self, step: Step) -> None:
        """Delete one of a job's pods."""
        for pod in await self._chosen(step, lambda pod: not is_leaving(pod)):
            await self.world.client.delete(api.PODS, pod["metadata"]["name"], self.world.namespace)

    # ---- by hand

    async def resize_by_hand(self, step: Step) -> None:
        """Write another size into a job's object."""
        size, kind = 1 + step.number, self._kinds.get(step.target)
        if kind == api.JOBS:
            await self._change(step.target, {"parallelism": size, "completions": size})
        elif kind in (api.JOBSETS, api.TRAINJOBS):
            body = {"spec": {"parallelism": size, "completions": size}}
            await self.world.client.patch(api.JOBS, (self.world.namespace, f"{step.target}-node-0"), body)
        elif kind is not None:
            specs = "mpiReplicaSpecs" if kind == api.MPIJOBS else "pytorchReplicaSpecs"
            await self._change(step.target, {specs: {"Worker": {"replicas": size}}})

    async def suspend_by_hand(self, step: Step) -> None:
        """Suspend a job, or remove its suspension."""
        suspend = {"suspend": step.number % 2 == 0}
        is_plain = self._kinds.get(step.target) in (api.JOBS, api.JOBSETS, api.TRAINJOBS)
        await self._change(step.target, suspend if is_plain else {"runPolicy": suspend})

    async def lift_gate(self, step: Step) -> None:
        """Lift the gate of a pod that waits, without saying where it shall go."""
        for pod in await self._chosen(step, lambda pod: bool(pod["spec"].get("schedulingGates"))):
            others = [gate for gate in pod["spec"]["schedulingGates"] if gate["name"] != GATE]
            body = {"spec": {"schedulingGates": others or None}}
            await self.world.client.patch(api.PODS, (self.world.namespace, pod["metadata"]["name"]), body)

    async def delete_service(self, step: Step) -> None:
        """Delete a Service that belongs to a job."""
        services = await self.world.client.list(api.SERVICES, self.world.namespace)
        for service in [each for each in services if controller_of(each).get("name") == step.target][:1]:
            await self.world.client.delete(api.SERVICES, service["metadata"]["name"], self.world.namespace)

    # ---- nodes

    async def evict(self, step: Step) -> None:
        """Let a kubelet evict one of a job's pods."""
        for pod in await self._chosen(step, lambda pod: phase_of(pod) == "Running" and not is_leaving(pod)):
            await self.world.kubelet.evict(self.world.namespace, pod["metadata"]["name"])

    async def cordon(self, step: Step) -> None:
        """Cordon a node."""
        await self.world.cordon(step.target)

    async def uncordon(self, step: Step) -> None:
        """Let a node be used again."""
        await self.world.cordon(step.target, False)

    async def drain(self, step: Step) -> None:
        """Do as `kubectl drain` does: cordon, and evict what is there by the API."""
        await self.world.cordon(step.target)
        for pod in await self.world.client.list(api.PODS):
            if pod["spec"].get("nodeName") == step.target:
                namespace, name = api.key_of(pod)
                meta = {"namespace": namespace, "name": name}
                body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": meta}
                with suppress(Refused):
                    await self.world.client.request("POST", api.PODS.path(namespace, name, "eviction"), body=body)

    async def lose_node(self, step: Step) -> None:
        """Let a node's kubelet die, which is noticed."""
        await self.world.lose_node(step.target)
        await self.world.set_ready(step.target, False)

    async def restore_node(self, step: Step) -> None:
        """Let it come back."""
        await self.world.set_ready(step.target, True)
        await self.world.restore_node(step.target)

    async def flap(self, step: Step) -> None:
        """Let a heartbeat be late."""
        await self.world.set_ready(step.target, False)
        await self.world.set_ready(step.target, True)

    async def remove_node(self, step: Step) -> None:
        """Let a machine vanish."""
        await self.world.remove_node(step.target)
        # Its slices belong to the node's object, which a driver would have said.
        for name in claims.slice_names(step.target):
            await self.world.client.delete(api.SLICES, name)

    async def add_node(self, step: Step) -> None:
        """Let it be there again."""
        await self._add(step.target)

    async def bring_foreign(self, step: Step) -> None:
        """Let somebody else's pod ask for GPUs, or for a part of one."""
        gpus = step.number % (1 + claims.MOST_GPUS) if self.has_claims else 1 + step.number % claims.MOST_GPUS
        asked: dict[str, Any] = {"spec": claims.claim(gpus)} if self.has_claims else {"gpus": gpus}
        await self.world.client.create(api.PODS, a_pod(step.target, "default", **asked))

    async def end_foreign(self, step: Step) -> None:
        """Let it go."""
        await self.world.client.delete(api.PODS, step.target, "default")

    # ---- programs

    async def kill_voda(self, step: Step) -> None:
        """End voda as kill -9 does, and start it again."""
        assert not self.voda.is_over(), f"voda ended by itself with {self.voda.process.returncode}"
        self.voda.kill()
        self.voda = self._start_voda()

    async def restart(self, step: Step) -> None:
        """End a part of the control plane, an operator or all kubelets, as a crash does, and start it again."""
        plane, cluster = self.world.plane, self.world.cluster
        match step.target:
            case "kube-apiserver":
                await asyncio.to_thread(plane.interrupt_api_server, 0.0)
            case "kube-controller-manager":
                plane.kill(step.target)
                plane.start_controllers()
            case "kube-scheduler":
                plane.kill(step.target)
                plane.start_scheduler()
            case _:
                [peer] = [each for each in cluster.peers if each.name == step.target]
                peer.crash()
        await asyncio.to_thread(cluster.tend)

    def end(self) -> None:
        """Kill voda."""
        self.voda.kill()

    # ---- inside

    def _start_voda(self) -> Replica:
        self._starts += 1
        self.port = free_port()
        return Replica(
            self.world,
            self.folder / f"voda-{self._starts}",
            str(self.log),
            program=_PROGRAM,
            environment={"MONKEY_PORT": str(self.port)},
            settings={
                **SETTINGS,
                **({"cluster": claims.CLUSTER} if self.has_claims else {}),
                "leader": {"namespace": self.world.namespace, **_LEADER},
            },
        )

    async def _add(self, name: str) -> None:
        """Add a node unless it is there, and the devices that it offers."""
        if await self.world.client.find(api.NODES, name) is None:
            await self.world.add_node(name, gpus=0 if self.has_claims else GPUS)
        if self.has_claims:
            await self._publish(name)

    async def _publish(self, node: str) -> None:
        """Say what devices a node offers, as far as that is not said."""
        for each in claims.slices(node, GPUS):
            if await self.world.client.find(api.SLICES, each["metadata"]["name"]) is None:
                await self.world.client.create(api.SLICES, each)

    async def _restore(self, name: str) -> None:
        await self._add(name)
        await self.restore_node(Step("restore_node", name))
        await self.world.cordon(name, False)

    async def _pods(self, job: str) -> Sequence[Object]:
        pods = await self.world.client.list(api.PODS, self.world.namespace)
        return sorted((pod for pod in pods if job in _job_names(pod)), key=lambda pod: str(pod["metadata"]["name"]))

    async def _chosen(self, step: Step, fits: Callable[[Object], bool]) -> Sequence[Object]:
        """Return the pod that a step means among those of its job that fit; none where there is none."""
        pods = [pod for pod in await self._pods(step.target) if fits(pod)]
        return [pods[step.number % len(pods)]] if pods else []

    async def _exit(self, pods: Sequence[Object], code: int) -> None:
        exits: list[Awaitable[None]] = []
        for pod in pods:
            exits.append(self.world.kubelet.exit(self.world.namespace, pod["metadata"]["name"], code))
        for result in await asyncio.gather(*exits, return_exceptions=True):
            if isinstance(result, BaseException) and not isinstance(result, (AssertionError, *_AWAY)):
                raise result

    async def _change(self, name: str, spec: Object) -> None:
        if (resource := self._kinds.get(name)) is not None:
            await self.world.client.patch(resource, (self.world.namespace, name), {"spec": spec})


def _job_names(pod: Object) -> set[str]:
    labels = pod["metadata"].get("labels", {})
    return {labels.get(each, "") for each in (JOB_NAME, jobs_world.JOB_NAME, OF_JOBSET)}


def _manifest(name: str, namespace: str, shape: JobShape, asked: Mapping[str, Any]) -> Object:
    """Return a job that no number of failures ends; its GPUs are `asked` for."""
    fields: dict[str, Any] = {
        **asked,
        "least": shape.least,
        "most": shape.most,
        "priority": shape.priority,
        "pool": "v100",
        "suspend": True,
    }
    match shape.kind:
        case "MPIJob":
            launcher = {"nodeSelector": {"role": "launchers"}}
            return an_mpijob(name, namespace, shape.least, policy=_RETRIED, launcher_spec=launcher, **fields)
        case "PyTorchJob":
            return a_pytorchjob(name, namespace, shape.least, policy=_RETRIED, **fields)
        case "TrainJob":
            return a_trainjob(name, namespace, shape.least, **fields)
        case "JobSet":
            return a_jobset(name, namespace, shape.least, job=_RETRIED, **fields)
        case _:
            return an_indexed_job(name, namespace, shape.least, spec=_RETRIED, **fields)
