"""The ancestor's endpoints, asked as its scripts ask."""

from pathlib import Path

import pytest
import yaml

from tests.builders import a_spec
from tests.integration.api.test_plans import pass_time
from tests.service import a_manifest, a_service
from voda.auth.tokens import Authenticator
from voda.clock import VirtualClock
from voda.domain.job import Phase
from voda.domain.settings import Settings
from voda.events.types import JobCompleted, JobSubmitted, WorkerExited, WorkerStarted
from voda.wire.base import Problem

HEAD = (
    "NAME                                                         STATUS     WORKERS    SCHEDULER                 "
    "WAITING    RUNNING    TOTAL     \n"
)


async def test_training_when_posted_as_yaml_then_is_submitted_under_a_dated_name() -> None:
    async with a_service() as service:
        body = yaml.safe_dump(a_manifest("mnist", workers=2))
        first = await service.ask("POST", "/training", body=body)
        assert (first.status, first.headers["Content-Type"]) == (200, "text/plain; charset=utf-8")
        assert first.body.decode().splitlines()[0] == "Training job created: mnist-20231114-221320"
        pass_time(service)
        second = await service.ask("POST", "/training", body=body)
        assert second.body.decode().splitlines()[0] == "Training job created: mnist-20231114-221321"
        record = service.backend.journal.view.job_registry.find("mnist-20231114-221320")
        assert record is not None
        assert record.spec.history_category == "mnist"


async def test_training_when_it_names_its_job_in_the_environment_then_that_name_is_dated_too() -> None:
    async with a_service() as service:
        manifest = a_manifest("mnist")
        launcher = manifest["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]["containers"][0]
        launcher["env"] = [{"name": "JOB_NAME", "value": "mnist"}, {"name": "EPOCHS", "value": "3"}]
        await service.ask("POST", "/training", body=manifest)
        record = service.backend.journal.view.job_registry.find("mnist-20231114-221320")
        assert record is not None
        (event,) = await service.backend.journal.store.read(record.submitted_position - 1, 1)
        assert isinstance(event.data, JobSubmitted)
        assert event.data.spec.manifest is not None
        kept = event.data.spec.manifest["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]["containers"][0]
        assert kept["env"][0] == {"name": "JOB_NAME", "value": "mnist-20231114-221320"}
        assert (record.spec.epochs, record.spec.history_category) == (3, "mnist")


async def test_training_when_posted_to_a_pool_then_goes_there() -> None:
    async with a_service(pools=("default", "v100")) as service:
        await service.ask("POST", "/training?pool=v100", body=a_manifest("mnist"))
        (record,) = service.backend.journal.view.job_registry.jobs().values()
        assert record.spec.pool == "v100"
        assert (await service.ask("POST", "/training?pool=k80", body=a_manifest("mnist"))).status == 404


@pytest.mark.parametrize("body", [b"", b"just text", b"[1]", b"kind: Pod", b"metadata: 5", b"\xff", b"a: &a [*a]"])
async def test_training_when_it_is_no_manifest_then_is_refused(body: bytes) -> None:
    async with a_service() as service:
        answer = await service.ask("POST", "/training", body=body)
        assert answer.status in (400, 422)
        assert answer.as_a(Problem).detail
        assert not service.backend.journal.view.job_registry.jobs()


async def test_training_when_listed_then_is_the_ancestors_table() -> None:
    async with a_service() as service:
        await service.happens(JobSubmitted(spec=a_spec("b", max_replicas=2)))
        await service.happens(JobSubmitted(spec=a_spec("a")))
        pass_time(service, 88)
        await service.happens(WorkerStarted(job_id="b", workers={0: "n1", 1: "n1"}))
        await service.happens(WorkerStarted(job_id="a", workers={0: "n1"}))
        pass_time(service, 3605)
        await service.happens(WorkerExited(job_id="a", workers=(0,), cause="finished"))
        await service.happens(JobCompleted(job_id="a"))
        pass_time(service, 10)
        answer = await service.ask("GET", "/training")
        row = "{:<60} {:<10} {:<10} {:<25} {:<10} {:<10} {:<10}\n"
        assert answer.body.decode() == (
            HEAD
            + row.format("a", "Completed", "0", "default", "1m28s", "1h0m5s", "1h1m33s")
            + row.format("b", "Running", "2", "default", "1m28s", "1h0m15s", "1h1m43s")
        )
        assert (await service.ask("GET", "/training?pool=default")).body == answer.body
        assert (await service.ask("GET", "/training?pool=other")).status == 404


@pytest.mark.parametrize("body", ['"a"', "a", "a\n"])
async def test_training_when_deleted_then_is_canceled(body: str) -> None:
    async with a_service() as service:
        await service.happens(JobSubmitted(spec=a_spec("a")))
        answer = await service.ask("DELETE", "/training", body=body)
        assert (answer.status, answer.body) == (200, b"Training job deleted: a\n")
        record = service.backend.journal.view.job_registry.find("a")
        assert record is not None
        assert (record.is_canceling, record.phase) == (True, Phase.SUBMITTED)
        assert (await service.ask("DELETE", "/training", body='"b"')).status == 404
        assert (await service.ask("DELETE", "/training", body='"a')).status == 422
        assert (await service.ask("DELETE", "/training")).status == 422


@pytest.mark.parametrize(
    ("algorithm", "policy"),
    [
        ('"FIFO"', "fifo"),
        ('"ElasticFIFO"', "elastic-fifo"),
        ('"SRJF"', "srjf"),
        ('"ElasticSRJF"', "elastic-srjf"),
        ('"Tiresias"', "tiresias"),
        ('"ElasticTiresias"', "elastic-tiresias"),
        ('"FfDLOptimizer"', "ffdl"),
        ('"AFS-L"', "afs-l"),
        ("elastic-tiresias", "elastic-tiresias"),
    ],
)
async def test_algorithm_when_set_by_the_ancestors_name_then_is_the_policy(algorithm: str, policy: str) -> None:
    async with a_service() as service:
        answer = await service.ask("PUT", "/algorithm", body=algorithm)
        assert (answer.status, answer.body.decode()) == (200, f"Scheduler: default\nScheduling Algorithm: {policy}\n")
        assert (await service.ask("GET", "/api/v1/pools/default/settings")).as_a(Settings).policy == policy


async def test_algorithm_when_unknown_then_is_refused_with_those_there_are() -> None:
    async with a_service() as service:
        problem = (await service.ask("PUT", "/algorithm", body='"Optimus"')).as_a(Problem)
        assert (problem.status, "elastic-fifo" in problem.detail) == (422, True)


async def test_ratelimit_when_set_then_is_the_pools() -> None:
    async with a_service() as service:
        answer = await service.ask("PUT", "/ratelimit", body="12")
        told = b"Scheduler: default\nRe-scheduling ratelimit (sec): 12\n"
        assert (answer.status, answer.body) == (200, told)
        for body in ("-1", "soon", "nan", "1e9", "", "86401"):
            assert (await service.ask("PUT", "/ratelimit", body=body)).status == 422, body
        assert (await service.ask("GET", "/api/v1/pools/default/settings")).as_a(Settings).ratelimit_s == 12.0


async def test_ancestor_when_asked_without_the_right_then_is_refused(tmp_path: Path) -> None:
    access = Authenticator.open(tmp_path, VirtualClock(0.0))
    ann, eve = access.add("ann", "user"), access.add("eve", "viewer")
    async with a_service(access=access) as service:
        assert (await service.ask("GET", "/training")).status == 401
        assert (await service.ask("POST", "/training", token=eve, body=a_manifest("mnist"))).status == 403
        assert (await service.ask("PUT", "/ratelimit", token=ann, body="1")).status == 403
        assert (await service.ask("PUT", "/algorithm", token=ann, body="fifo")).status == 403
        await service.happens(JobSubmitted(spec=a_spec("a", user="bob")))
        assert (await service.ask("DELETE", "/training", token=ann, body="a")).status == 403
        assert (await service.ask("POST", "/training", token=ann, body=a_manifest("mnist"))).status == 200
        assert (await service.ask("GET", "/training", token=eve)).status == 200
