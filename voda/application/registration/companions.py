"""What a job's object needs beside itself to run, such as the Service by which its replicas find each other.

Rule: it is owned by the object, and goes with it; what somebody else made under the same name stays as it is.
"""

from typing import Any

from msgspec import Struct

from voda.cluster.kubernetes import well_known
from voda.cluster.kubernetes.client.api import Api
from voda.cluster.kubernetes.client.errors import Conflict
from voda.cluster.kubernetes.kinds.base import JobKind
from voda.cluster.kubernetes.objects import JobObject, ObjectMeta


class _Companion(Struct, frozen=True):
    metadata: ObjectMeta


async def make_companions(api: Api, kind: JobKind, job: JobObject) -> None:
    """Make what is missing; Conflict: what an earlier object of that name left is about to go, so try again."""
    for collection, body in kind.companions(job):
        try:
            await api.create(collection, body, _Companion)
        except Conflict:
            await _take_over(api, f"{collection}/{body['metadata']['name']}", body)


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
