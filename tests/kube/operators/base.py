"""What all operators have in common: they follow their jobs and what these own, and bring one job at a time into line.

Rule: a job is looked at whenever anything of it changes; what could not be done now is tried again.
"""

import asyncio
from collections.abc import Mapping
from copy import deepcopy
from typing import ClassVar

from tests.kube.client import EVENTS, PODS, Client, Key, Object, Refused, Resource, controller_of, key_of, now_text
from tests.kube.mirror import LONGEST_DELAY_S, Mirror, Queue

JOB_NAME = "training.kubeflow.org/job-name"
JOB_ROLE = "training.kubeflow.org/job-role"
OPERATOR_NAME = "training.kubeflow.org/operator-name"
REPLICA_INDEX = "training.kubeflow.org/replica-index"
REPLICA_TYPE = "training.kubeflow.org/replica-type"


class Operator:
    """See the module.

    Args:
        client: the API server's.
        workers: how many jobs at once.
        longest_delay_s: after failures, of a job.
    """

    resource: ClassVar[Resource]
    """Of its jobs."""
    name: ClassVar[str]
    """As its pods' label has it."""
    manager: ClassVar[str]
    """As `managedBy` has it."""
    limits_events: ClassVar[bool] = False
    """See Queue."""
    owned: ClassVar[Mapping[Resource, str]] = {}
    """Resource -> label selector of what it makes, beside pods."""

    def __init__(self, client: Client, workers: int = 16, *, longest_delay_s: float = LONGEST_DELAY_S) -> None:
        self.client = client
        self._at_once = workers
        self._queue = Queue(limits_events=self.limits_events, longest_s=longest_delay_s)
        self._deleted: set[str] = set()
        self.jobs = Mirror(client, self.resource)
        self.pods = Mirror(client, PODS, labels=f"{OPERATOR_NAME}={self.name}", group=_labelled)
        self.children = {
            resource: Mirror(client, resource, labels=labels, group=self._owner)
            for resource, labels in self.owned.items()
        }
        self.jobs.on_change = lambda job, is_there: self._queue.see(key_of(job))
        self.pods.on_change = lambda pod, is_there: self._add(_labelled(pod))
        for mirror in self.children.values():
            mirror.on_change = lambda thing, is_there: self._add(self._owner(thing))

    async def run(self) -> None:
        """Look after all jobs, for ever."""
        mirrors = [self.jobs, self.pods, *self.children.values()]
        async with asyncio.TaskGroup() as tasks:
            for mirror in mirrors:
                tasks.create_task(mirror.run())
            for mirror in mirrors:
                await mirror.is_synced.wait()
            tasks.create_task(self._queue.run(self._look, self._at_once))

    async def reconcile(self, job: Object) -> None:
        """Bring one job into line; `job` may be changed at will."""
        raise NotImplementedError

    async def _look(self, key: Key) -> None:
        seen = self.jobs.get(key)
        if seen is None or "deletionTimestamp" in seen["metadata"]:
            return
        job = deepcopy(seen)
        if job["spec"].get("runPolicy", {}).get("managedBy") in (None, "", self.manager):
            await self.reconcile(job)

    def pods_of(self, job: Object) -> list[Object]:
        """Return all pods that carry a job's name, in the order of their names."""
        return sorted(self.pods.of(key_of(job)), key=lambda pod: str(pod["metadata"]["name"]))

    def child(self, resource: Resource, job: Object, name: str) -> Object | None:
        """Return an object of a job; refuse what has its name and belongs to somebody else."""
        mirror = self.pods if resource is PODS else self.children[resource]
        found = mirror.get((job["metadata"]["namespace"], name))
        if found is not None and controller_of(found).get("uid") != job["metadata"]["uid"]:
            raise Refused(
                409, "ErrResourceExists", f"{resource.kind} {name} is not controlled by this {self.resource.kind}"
            )
        return found

    async def create(self, resource: Resource, job: Object, body: Object) -> Object:
        """Create an object that a job owns."""
        owner = {"apiVersion": self.resource.api_version, "kind": self.resource.kind, "name": job["metadata"]["name"]}
        owner |= {"uid": job["metadata"]["uid"], "controller": True, "blockOwnerDeletion": True}
        metadata = {**body["metadata"], "namespace": job["metadata"]["namespace"], "ownerReferences": [owner]}
        return await self.client.create(resource, {**body, "metadata": metadata})

    async def delete(self, pod: Object) -> None:
        """Delete a pod, unless that was done already."""
        uid = pod["metadata"]["uid"]
        if "deletionTimestamp" not in pod["metadata"] and uid not in self._deleted:
            namespace, name = key_of(pod)
            await self.client.delete(PODS, name, namespace, uid=uid)
            # The mirror may show it for a while yet.
            self._deleted.add(uid)

    async def ensure(self, resource: Resource, job: Object, body: Object, *compared: str) -> None:
        """Create an object of a job, or put right those of its fields that are named."""
        found = self.child(resource, job, body["metadata"]["name"])
        if found is None:
            await self.create(resource, job, body)
        elif any(found.get(field) != body[field] for field in compared):
            await self.client.replace(resource, {**found, **{field: body[field] for field in compared}})

    async def write_status(self, job: Object) -> None:
        """Write a job's status if it differs from what was seen last; refused where the job changed meanwhile."""
        seen = self.jobs.get(key_of(job))
        if seen is None or seen.get("status", {}) != job["status"]:
            await self.client.replace(self.resource, job, "status")

    async def warn(self, job: Object, reason: str, message: str) -> None:
        """Write an Event about a job; once, however often it is said."""
        metadata, now = job["metadata"], now_text()
        about = {"apiVersion": self.resource.api_version, "kind": self.resource.kind, "name": metadata["name"]}
        about |= {"namespace": metadata["namespace"], "uid": metadata["uid"]}
        body = {
            "metadata": {"namespace": metadata["namespace"], "name": f"{metadata['name']}.{reason.lower()}"},
            "involvedObject": about,
            "type": "Warning",
            "reason": reason,
            "message": message,
            "source": {"component": self.name},
            "count": 1,
            "firstTimestamp": now,
            "lastTimestamp": now,
        }
        try:
            await self.client.create(EVENTS, body)
        except Refused as refused:
            if refused.reason != "AlreadyExists":
                raise

    def later(self, job: Object, delay_s: float) -> None:
        """Look at a job again in a while."""
        self._queue.add_after(key_of(job), delay_s)

    def _owner(self, thing: Object) -> Key | None:
        owner = controller_of(thing)
        if owner.get("kind") != self.resource.kind:
            return None
        return str(thing["metadata"]["namespace"]), str(owner["name"])

    def _add(self, key: Key | None) -> None:
        if key is not None:
            self._queue.see(key)


def phase_of(pod: Object) -> str:
    """Return the phase of a pod."""
    return str(pod["status"].get("phase", "Pending"))


def is_evicted(pod: Object) -> bool:
    """Say whether its node threw a pod out."""
    return phase_of(pod) == "Failed" and pod["status"].get("reason") == "Evicted"


def labelled(pod: Object, label: str) -> str:
    """Return a label of a pod, empty where it has none."""
    return str(pod["metadata"].get("labels", {}).get(label, ""))


def replicas_of(job: Object, specs: str, role: str) -> int:
    """Return how many replicas of a role are wanted; 0 where there is no such role."""
    return int(job["spec"][specs].get(role, {}).get("replicas", 0))


def run_policy(job: Object) -> Object:
    """Return a job's runPolicy."""
    policy: Object = job["spec"].get("runPolicy", {})
    return policy


def is_suspended(job: Object) -> bool:
    """Say whether a job is to have no pods."""
    return bool(run_policy(job).get("suspend"))


def _labelled(pod: Object) -> Key | None:
    name = labelled(pod, JOB_NAME)
    return (str(pod["metadata"]["namespace"]), name) if name else None
