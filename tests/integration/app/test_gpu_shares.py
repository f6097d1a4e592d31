"""A whole service on a machine of two GPUs, which a driver of tests shows: jobs that share one, and an elastic job."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.local_jobs import FOREVER, FakeNvml, base_environment, cards
from tests.waiting import until_it_is
from voda.app import machine
from voda.app.machine import MachineOptions
from voda.app.service import MachineService, running
from voda.cli.program import ProgramOptions, program_document


@dataclass
class Up:
    """A service, and a caller of its API."""

    service: MachineService
    session: aiohttp.ClientSession

    async def get(self, path: str) -> Any:
        async with self.session.get(f"{self.service.url}/api/v1/{path}") as answer:
            assert answer.status == 200, await answer.text()
            return await answer.json()

    async def submit(self, manifest: dict[str, Any]) -> dict[str, Any]:
        async with self.session.post(f"{self.service.url}/api/v1/jobs", json=manifest) as answer:
            assert answer.status == 201, await answer.text()
            body: dict[str, Any] = await answer.json()
            return body

    async def cancel(self, *job_ids: str) -> None:
        for job_id in job_ids:
            async with self.session.delete(f"{self.service.url}/api/v1/jobs/{job_id}") as answer:
                assert answer.status < 300, await answer.text()

    async def cancel_all(self) -> None:
        """Cancel what is live, and wait until no process of it is left."""
        await self.cancel(*self.service.live_jobs())

        async def is_deserted() -> bool:
            observed = [await cluster.observe() for cluster in self.service.clusters]
            return not self.service.live_jobs() and not any(each.workers for each in observed)

        await until_it_is(is_deserted)

    async def until_workers(self, **expected: int) -> None:
        """Wait until jobs have so many workers each."""

        async def are_there() -> bool:
            found = {job_id: (await self.get(f"jobs/{job_id}"))["replicas"] for job_id in expected}
            return found == expected

        await until_it_is(are_there)

    async def reason(self, job_id: str) -> str:
        return str((await self.get(f"jobs/{job_id}"))["reason"])


@asynccontextmanager
async def an_up(home: Path, *, leaves_jobs: bool = False, **options: Any) -> AsyncIterator[Up]:
    """Yield a service; its jobs end with it, unless it `leaves_jobs`."""
    fields: dict[str, Any] = {"port": 0, "has_tokens": False, "ratelimit_s": 0.0, "gpu_sharing": "plain", **options}
    environment = {**base_environment(), "CUDA_MPS_PIPE_DIRECTORY": str(home / "no-mps")}
    async with (
        running(MachineOptions(home=home, environment=environment, **fields)) as service,
        aiohttp.ClientSession() as session,
    ):
        up = Up(service, session)
        try:
            yield up
        finally:
            if not leaves_jobs:
                await up.cancel_all()


@pytest.fixture(autouse=True)
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    nvml = FakeNvml(*cards(2, memory_mib=16_384))
    monkeypatch.setattr(machine, "open_driver", lambda: nvml.cards)


def a_share(name: str, milli: int, script: str = FOREVER, **options: Any) -> dict[str, Any]:
    """Return what `voda submit --gpu-milli N -- sh -c SCRIPT` sends."""
    made = program_document(["sh", "-c", script], ProgramOptions(gpu_milli=milli, **options), name=name)
    return dict(made.document.manifest)


def an_elastic(name: str, most: int = 2) -> dict[str, Any]:
    container = {"name": "pytorch", "command": ["sh", "-c", f"trap 'exit 0' TERM; {FOREVER}"]}
    role = {"replicas": 1, "template": {"spec": {"containers": [container]}}}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": name, "annotations": {"voda.dev/max-replicas": str(most)}},
        "spec": {"elasticPolicy": {"minReplicas": 1, "maxReplicas": most}, "pytorchReplicaSpecs": {"Worker": role}},
    }


@pytest.mark.slow
async def test_elastic_job_gives_a_card_up_for_shares_and_gets_it_back(tmp_path: Path) -> None:
    async with an_up(tmp_path / "home") as up:
        await up.submit(an_elastic("train"))
        await up.until_workers(train=2)
        submitted = await up.submit(a_share("nb", 250, gpu_memory="4Gi"))
        assert submitted["job"]["share"] == {"milli": 250, "memory_mib": 4_096}
        await up.until_workers(train=1, nb=1)
        await up.submit(a_share("serve", 500))
        await up.until_workers(serve=1)
        (node,) = (await up.get("nodes"))["items"]
        assert (node["gpus"], node["used_gpus"], node["free_gpus"], node["jobs"]) == (2, 1, 0, {"train": 1})
        (card,) = (each for each in node["devices"] if each["shares"])
        assert (card["free_milli"], card["free_memory_mib"]) == (250, 12_288)
        assert {share["pod"] for share in card["shares"]} == {"default/nb", "default/serve"}
        # A third one does not fit beside them, and the elastic job needs the other card for its minimum.
        await up.submit(a_share("late", 300))
        told = "waits: needs 300 milli of one card; a shared one has at most 250 milli and 12,288 MiB left"

        async def is_told() -> bool:
            return (await up.reason("late")).startswith(told)

        await until_it_is(is_told)
        explained = await up.get("jobs/serve/explain")
        assert explained["card"].startswith(f"500 milli of card {card['index']} of ")
        assert "beside default/nb (250 milli and 4,096 MiB of card" in explained["card"]
        assert (await up.get("jobs/late/explain"))["shortage"] is None
        await up.cancel("serve")
        await up.until_workers(late=1, train=1)
        await up.cancel("late", "nb")
        await up.until_workers(train=2)
        types = [event["type"] for event in (await up.get("events?limit=500"))["items"]]
        assert types.count("share.assigned") == types.count("share.released") == 3


@pytest.mark.slow
async def test_shares_go_on_while_voda_is_away_and_are_still_theirs_when_it_is_back(tmp_path: Path) -> None:
    async with an_up(tmp_path / "home", leaves_jobs=True) as up:
        await up.submit(a_share("nb", 600))
        await up.until_workers(nb=1)
    async with an_up(tmp_path / "home") as up:
        await up.submit(a_share("other", 600))
        await up.until_workers(nb=1, other=1)
        (node,) = (await up.get("nodes"))["items"]
        assert sorted(card["free_milli"] for card in node["devices"]) == [400, 400]


async def test_job_that_asks_for_a_part_where_nothing_divides_gpus_gets_one_alone(tmp_path: Path) -> None:
    async with an_up(tmp_path / "home", gpu_sharing="auto") as up:
        submitted = await up.submit(a_share("nb", 250, "true"))
        assert (submitted["job"]["share"], submitted["job"]["gpus_per_replica"]) == (None, 1)
        (warning,) = (each["message"] for each in submitted["warnings"] if "whole GPUs" in each["message"])
        assert warning.startswith("its workers get whole GPUs: nothing here divides GPUs")
