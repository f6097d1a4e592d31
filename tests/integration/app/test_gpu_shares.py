"""A whole service on a machine of two GPUs, which a driver of tests shows: jobs that share one, and an elastic job."""

from pathlib import Path

import pytest

from tests.gpu_machine import a_share, an_elastic, an_up, of_cluster
from tests.local_jobs import FakeNvml, gpus
from tests.waiting import until_it_is
from voda.app import machine
from voda.timetravel.verify import verify


@pytest.fixture(autouse=True)
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    nvml = FakeNvml(*gpus(2, memory_mib=16_384))
    monkeypatch.setattr(machine, "open_driver", lambda: nvml.gpus)


@pytest.mark.slow
async def test_elastic_job_gives_a_gpu_up_for_shares_and_gets_it_back(tmp_path: Path) -> None:
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
        (gpu,) = (each for each in node["devices"] if each["shares"])
        assert (gpu["free_milli"], gpu["free_memory_mib"]) == (250, 12_288)
        assert {share["pod"] for share in gpu["shares"]} == {"default/nb", "default/serve"}
        # A third one does not fit beside them, and the elastic job needs the other GPU for its minimum.
        await up.submit(a_share("late", 300))
        told = (
            "waits: needs 300 milli of one GPU, and none is whole; a shared one has at most 250 milli and 12,288 MiB"
            " left"
        )

        async def is_told() -> bool:
            return (await up.reason("late")).startswith(told)

        await until_it_is(is_told)
        explained = await up.get("jobs/serve/explain")
        assert explained["gpu"].startswith(f"500 milli of GPU {gpu['index']} of ")
        assert "beside default/nb (250 milli and 4,096 MiB of GPU" in explained["gpu"]
        assert (await up.get("jobs/late/explain"))["shortage"] is None
        (pool,) = (await up.get("pools"))["items"]
        assert (pool["gpus"], pool["shared_gpus"], pool["used_gpus"]) == (1, 1, 1)
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
        assert sorted(gpu["free_milli"] for gpu in node["devices"]) == [400, 400]


@pytest.mark.slow
async def test_shares_of_virtual_clusters_take_cells_of_their_quota_and_those_without_a_guarantee_give_them_back(
    tmp_path: Path,
) -> None:
    async with an_up(tmp_path / "home", leaves_jobs=True) as up:
        await up.apply({"vision": 1, "speech": 1})
        await up.submit(of_cluster("vision", an_elastic("train")))
        await up.until_workers(train=2)
        # vision's own job shrinks off the GPU that is speech's: a share of speech takes it whole.
        await up.submit(of_cluster("speech", a_share("serve", 400)))
        await up.until_workers(train=1, serve=1)
        await up.submit(of_cluster("speech", a_share("more", 500)))
        await up.until_workers(train=1, serve=1, more=1)
        await up.submit(of_cluster("speech", a_share("late", 200)))
        told = (
            "waits: needs 200 milli of one GPU; a shared one of virtual cluster speech has at most 100 milli and"
            " 16,384 MiB left; virtual cluster speech has 1 of its 1 gpu in use by its own jobs; idle cells"
        )

        async def is_told() -> bool:
            return (await up.reason("late")).startswith(told)

        await until_it_is(is_told)
        assert (await up.reason("serve")).endswith("guaranteed by virtual cluster speech")
        clusters = {each["name"]: each for each in (await up.get("virtual-clusters"))["items"]}
        used = {name: sum(quota["gpus_in_use"] for quota in clusters[name]["quotas"]) for name in clusters}
        assert used == {"vision": 1, "speech": 1, "default": 0}
        await up.cancel("late", "train")

    async with an_up(tmp_path / "home") as up:
        await up.until_workers(serve=1, more=1)
        # vision's GPU is idle: a share without a guarantee has it until vision needs it.
        await up.submit(of_cluster("speech", a_share("idle", 300), -1))
        await up.until_workers(serve=1, more=1, idle=1)
        await up.submit(of_cluster("vision", a_share("mine", 300)))
        await up.until_workers(serve=1, more=1, idle=0, mine=1)
        assert (await up.reason("idle")).endswith("virtual cluster vision took cells of 1 worker back")
        verification = await verify(up.service.store)
        assert (verification.difference, verification.decisions > 5) == (None, True)


async def test_job_that_asks_for_a_part_where_nothing_divides_gpus_gets_one_alone(tmp_path: Path) -> None:
    async with an_up(tmp_path / "home", gpu_sharing="auto") as up:
        submitted = await up.submit(a_share("nb", 250, "true"))
        assert (submitted["job"]["share"], submitted["job"]["gpus_per_replica"]) == (None, 1)
        (warning,) = (each["message"] for each in submitted["warnings"] if "whole GPUs" in each["message"])
        assert warning.startswith("its workers get whole GPUs: nothing here divides GPUs")
