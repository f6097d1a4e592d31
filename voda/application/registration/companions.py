"""What a job's object needs beside itself to run, such as the Service by which its replicas find each other.

Rule: it is owned by the object, and goes with it; what somebody else made under the same name stays as it is.
"""

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from msgspec import Struct

from voda.cluster.kubernetes import well_known
from voda.cluster.kubernetes.client.api import Api
from voda.cluster.kubernetes.client.errors import Conflict
from voda.cluster.kubernetes.kinds.base import JobKind
from voda.cluster.kubernetes.objects import JobObject, NamedObject, ObjectMeta
from voda.cluster.kubernetes.state.job_objects import KubeJob


class _Companion(Struct, frozen=True):
    metadata: ObjectMeta


async def make_companions(api: Api, kind: JobKind, job: JobObject) -> None:
    """Make what is missing; Conflict: what an earlier object of that name left is about to go, so try again."""
    for collection, body in kind.companions(job):
        try:
            await api.create(collection, body, _Companion)
        except Conflict:
            await _take_over(api, f"{collection}/{body['metadata']['name']}", body)


async def restore_companions(api: Api, jobs: Iterable[KubeJob]) -> None:
    """Make again what somebody deleted of what jobs need; one list for each namespace where they need anything."""
    needing: defaultdict[str, dict[str, KubeJob]] = defaultdict(dict)
    for job in jobs:
        for collection, body in job.kind.companions(job.object):
            needing[collection][body["metadata"]["name"]] = job
    for collection, by_name in needing.items():
        there = {each.metadata.name for each in (await api.list(collection, NamedObject)).items}
        for name in by_name.keys() - there:
            await make_companions(api, by_name[name].kind, by_name[name].object)


async def _take_over(api: Api, path: str, body: dict[str, Any]) -> None:
    """Make what an earlier object of the same name left this one's."""
    found = await api.get(path, _Companion)
    (owner,) = body["metadata"]["ownerReferences"]
    if found is None or found.metadata.deletion_timestamp is not None:
        raise Conflict(f"{path} is about to go")
    is_ours = found.metadata.labels.get(well_known.MANAGED) == "true"
    owners = {(each.name, each.uid) for each in found.metadata.owner_references}
    if is_ours and (owner["name"], owner["uid"]) not in owners and owner["name"] in {name for name, _ in owners}:
        metadata = {"uid": found.metadata.uid, "ownerReferences": [owner]}
        await api.patch(path, {"metadata": metadata}, _Companion)
