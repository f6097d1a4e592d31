"""What a job's object needs beside itself to run, such as the Service by which its replicas find each other.

Rule: it is owned by the object, and goes with it; what somebody else made under the same name stays as it is.
"""

import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, Final

from msgspec import Struct

from voda.cluster.kubernetes import well_known
from voda.cluster.kubernetes.kinds.base import JobKind
from voda.cluster.kubernetes.objects import JobObject, ObjectMeta
from voda.cluster.kubernetes.state.job_objects import KubeJob
from voda.concurrency import for_each, log_unexpected
from voda.domain.errors import ActionRefused, VodaError
from voda.kubernetes_client.api import Api
from voda.kubernetes_client.errors import Conflict
from voda.kubernetes_client.metadata import PartialObject

_log = logging.getLogger(__name__)

_OURS: Final = {"labelSelector": f"{well_known.MANAGED}=true"}
_AT_ONCE: Final = 8
"""Namespaces looked at at a time."""
_REMEDIES: Final = {
    "Service": "create one of them with another spec.template.spec.subdomain",
    "ResourceClaimTemplate": "create one of them under another name",
}


class _Companion(Struct, frozen=True):
    metadata: ObjectMeta


async def make_companions(api: Api, kind: JobKind, job: JobObject) -> None:
    """Make what is missing.

    Raises:
        Conflict: what an earlier object of that name left is about to go, so try again.
        ActionRefused: voda made one of that name for another job, which alone it serves; or the server refuses it.
    """
    for collection, body in kind.companions(job):
        try:
            await api.create(collection, body, _Companion)
        except Conflict:
            await _take_over(api, f"{collection}/{body['metadata']['name']}", body)


async def restore_companions(api: Api, jobs: Iterable[KubeJob]) -> None:
    """Make again what somebody deleted of what jobs need; one list for each namespace where they need anything.

    What fails in one namespace, or about one job, is logged, and keeps no other one from getting its own.
    """
    needing: defaultdict[str, dict[str, KubeJob]] = defaultdict(dict)
    for job in jobs:
        with log_unexpected("looking at what it needs", job.object.metadata.key):
            for collection, body in job.kind.companions(job.object):
                needing[collection][body["metadata"]["name"]] = job

    async def restore(collection: str) -> None:
        try:
            await _restore(api, collection, needing[collection])
        except VodaError as error:
            _log.warning("not restored collection=%s reason=%s", collection, error)

    await for_each(list(needing), restore, at_once=_AT_ONCE)


async def _restore(api: Api, collection: str, by_name: Mapping[str, KubeJob]) -> None:
    there = {each.metadata.name for each in (await api.list(collection, PartialObject, _OURS)).items}
    for name in by_name.keys() - there:
        try:
            await make_companions(api, by_name[name].kind, by_name[name].object)
        except VodaError as error:
            _log.warning("not restored collection=%s name=%s reason=%s", collection, name, error)


async def _take_over(api: Api, path: str, body: dict[str, Any]) -> None:
    """Make what an earlier object of the same name left this one's."""
    found = await api.get(path, _Companion)
    (owner,) = body["metadata"]["ownerReferences"]
    if found is None or found.metadata.deletion_timestamp is not None:
        raise Conflict(f"{path} is about to go")
    is_ours = found.metadata.is_managed
    owners = {(each.name, each.uid) for each in found.metadata.owner_references}
    if not is_ours or (owner["name"], owner["uid"]) in owners:
        return
    if owner["name"] in {name for name, _ in owners}:
        metadata = {"uid": found.metadata.uid, "ownerReferences": [owner]}
        await api.patch(path, {"metadata": metadata}, _Companion)
    elif owners:
        kind, other = body["kind"], found.metadata.owner_references[0]
        raise ActionRefused(
            f"{kind} {found.metadata.key}, which {owner['kind']} {owner['name']} needs, belongs to {other.kind}"
            f" {other.name}: {_REMEDIES[kind]}, or delete {other.kind} {other.name}"
        )
