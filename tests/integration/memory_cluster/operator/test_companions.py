"""What jobs need beside themselves is made again in each namespace, whatever goes wrong in another."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import msgspec
import pytest

from tests.kube.client import NAMESPACES, SERVICES
from tests.kube.memory_api import MemoryApi
from tests.kube.memory_server import MemoryServer
from tests.kube.memory_world import wall_s
from tests.virtual_time import virtually
from voda.cluster.kubernetes.kinds.indexed_job import IndexedJobV1
from voda.cluster.kubernetes.objects import JobObject
from voda.cluster.kubernetes.state.job_objects import KubeJob
from voda.domain.errors import ActionRefused
from voda.kubernetes_client.api import ObjectList
from voda.operator.registration.companions import make_companions, restore_companions

T = TypeVar("T")


class WithoutRights(MemoryApi):
    """Must not list in the namespace `closed`."""

    async def list(self, path: str, kind: type[T], query: Mapping[str, str] | None = None) -> ObjectList[T]:
        if "/namespaces/closed/" in path:
            raise ActionRefused(f"cannot list {path}: forbidden")
        return await super().list(path, kind, query)


def a_job(namespace: str, name: str = "digits", **annotations: str) -> KubeJob:
    notes = {f"voda.dev/{key.replace('_', '-')}": value for key, value in annotations.items()}
    metadata = {"name": name, "namespace": namespace, "uid": f"u-{namespace}-{name}", "annotations": notes}
    found = {"metadata": metadata, "spec": {"template": {"spec": {"subdomain": "digits"}}}}
    return KubeJob(IndexedJobV1(), msgspec.convert(found, JobObject))


def a_server() -> MemoryServer:
    server = MemoryServer(wall_s, [SERVICES])
    for name in ("closed", "open"):
        server.answer("POST", NAMESPACES.path(), {}, {"metadata": {"name": name}})
    return server


def test_namespace_that_may_not_be_read_keeps_no_other_from_getting_its_service() -> None:
    async def story() -> None:
        server = a_server()
        await restore_companions(WithoutRights(server), [a_job("closed"), a_job("open")])
        assert list(server.objects[SERVICES]) == [("open", "digits")]

    virtually(story())


class BrokenJob(IndexedJobV1):
    """Cannot say what it needs."""

    def companions(self, job: JobObject) -> Sequence[tuple[str, dict[str, Any]]]:
        raise ValueError("unforeseen")


def test_job_of_which_nobody_can_say_what_it_needs_keeps_no_other_from_getting_its_service() -> None:
    async def story() -> None:
        server = a_server()
        broken, absurd = KubeJob(BrokenJob(), a_job("open", "broken").object), "9" * 5_000
        hostile = a_job("closed", "hostile", device_class="gpu", gpus_claimed=absurd)
        await restore_companions(MemoryApi(server), [broken, hostile, a_job("open")])
        assert set(server.objects[SERVICES]) == {("open", "digits"), ("closed", "digits")}

    virtually(story())


def test_job_whose_service_belongs_to_another_job_is_told_whose_and_what_to_do() -> None:
    async def story() -> None:
        server = a_server()
        api, first, second = MemoryApi(server), a_job("open", "one"), a_job("open", "two")
        await make_companions(api, *first)
        with pytest.raises(
            ActionRefused,
            match=r"^Service open/digits, which Job two needs, belongs to Job one: create one of them with another"
            r" spec\.template\.spec\.subdomain, or delete Job one$",
        ):
            await make_companions(api, *second)
        await make_companions(api, *first)
        await api.delete(SERVICES.path("open", "digits"))
        await make_companions(api, *second)
        [service] = server.objects[SERVICES].values()
        assert service["metadata"]["ownerReferences"][0]["name"] == "two"

    virtually(story())


def test_service_that_users_made_for_their_jobs_is_left_as_it_is() -> None:
    async def story() -> None:
        server = a_server()
        theirs = {"metadata": {"name": "digits"}, "spec": {"clusterIP": "None"}}
        server.answer("POST", SERVICES.path("open"), {}, theirs)
        await make_companions(MemoryApi(server), *a_job("open", "one"))
        [service] = server.objects[SERVICES].values()
        assert "ownerReferences" not in service["metadata"]

    virtually(story())
