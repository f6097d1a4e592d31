"""What-ifs over HTTP, each simulated in a process of its own."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.replay.test_time_travel import LOGS
from tests.service import Service, a_service
from tests.waiting import until, until_it_is
from voda.api.what_ifs import WhatIfQuestion
from voda.app.what_if import runner as runner_module
from voda.app.what_if.runner import WhatIfRunner
from voda.auth.callers import Caller
from voda.clock import SystemClock
from voda.domain.errors import NotFound, TooManyRequests
from voda.log.archive.copy import copy_log
from voda.log.factory import open_log, open_store
from voda.log.store import EventStore
from voda.simulator.whatif.what_if import AlternativePolicy, compare_with
from voda.wire.base import Problem
from voda.wire.what_ifs import WhatIfView

ADMIN = Caller(user="root", role="admin")
ANN, BOB = Caller(user="ann", role="user"), Caller(user="bob", role="user")


def a_question(position: int = 1, policy: str = "afs-l") -> WhatIfQuestion:
    return WhatIfQuestion(position=position, pool="default", policy=policy)


@asynccontextmanager
async def running(log: Path) -> AsyncIterator[WhatIfRunner]:
    runner = WhatIfRunner(str(log), SystemClock())
    answering = asyncio.create_task(runner.run())
    try:
        yield runner
    finally:
        answering.cancel()
        await asyncio.gather(answering, return_exceptions=True)


async def a_log(folder: Path) -> tuple[Path, EventStore]:
    path = folder / "log.db"
    store = await open_store(str(path))
    await copy_log(await open_log(LOGS / "elastic-fifo"), store)
    return path, store


async def asked(service: Service, **fields: str) -> WhatIfView:
    answer = await service.ask("POST", "/api/v1/what-ifs", body={"at": "1", "pool": "default", **fields})
    assert answer.status == 202, answer.body
    return answer.as_a(WhatIfView)


async def known(service: Service, what_if_id: str) -> WhatIfView:
    return (await service.ask("GET", f"/api/v1/what-ifs/{what_if_id}")).as_a(WhatIfView)


async def test_what_if_when_asked_then_answers_as_replay_does(tmp_path: Path) -> None:
    path, store = await a_log(tmp_path)
    async with running(path) as runner, a_service(store, what_ifs=runner) as service:
        made = await asked(service, policy="elastic-tiresias")
        assert made.state == "waiting"

        async def is_done() -> bool:
            return (await known(service, made.what_if_id)).state not in ("waiting", "running")

        await until_it_is(is_done)
        found = await known(service, made.what_if_id)
        assert (found.state, found.error, found.progress) == ("done", "", 1.0)
        expected = await compare_with(store, 1, AlternativePolicy(policy="elastic-tiresias"))
        assert found.comparison is not None
        assert found.comparison.jobs == expected.jobs > 0
        assert found.comparison.what_if.avg_jct_s == expected.what_if.avg_jct_s
        assert found.comparison.recorded.utilisation == expected.recorded.utilisation
        assert [shift.job_id for shift in found.comparison.winners] == [one.job_id for one in expected.winners]
        assert found.recorded is not None
        assert found.what_if is not None
        assert len(found.recorded.gpus_in_use) == len(found.what_if.gpus_in_use) > 1
        assert max(found.what_if.gpus_in_use) > 0
        assert (await service.ask("DELETE", f"/api/v1/what-ifs/{made.what_if_id}")).status == 204
        assert (await service.ask("GET", f"/api/v1/what-ifs/{made.what_if_id}")).status == 404
    await store.close()


@pytest.mark.parametrize(
    ("field", "value"),
    [("policy", "fastest"), ("placer", "nowhere"), ("at", "yesterday"), ("at", "99999"), ("fair_share", "ann=-1")],
)
async def test_what_if_when_the_question_is_wrong_names_the_field(field: str, value: str) -> None:
    async with a_service() as service:
        body = {"at": "1", "pool": "default", "policy": "afs-l", field: value}
        answer = await service.ask("POST", "/api/v1/what-ifs", body=body)
        assert (answer.status, answer.as_a(Problem).field) == (422, field)


async def test_what_if_when_the_server_simulates_nothing_says_what_does() -> None:
    async with a_service() as service:
        body = {"at": "1", "pool": "default", "policy": "afs-l"}
        answer = await service.ask("POST", "/api/v1/what-ifs", body=body)
        assert answer.status == 403
        assert "voda replay --what-if" in answer.as_a(Problem).detail
        assert (await service.ask("GET", "/api/v1/what-ifs/x")).status == 404


async def test_what_if_when_the_log_cannot_be_read_says_why(tmp_path: Path) -> None:
    async with running(tmp_path / "none" / "log.db") as runner:
        made = runner.ask(a_question(), ANN)
        await until(lambda: runner.get(made.what_if_id, ANN).state == "failed")
        assert "log.db" in runner.get(made.what_if_id, ANN).error


async def test_what_if_when_voda_was_started_in_a_folder_of_another_runs_nothing_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "voda").mkdir()
    (tmp_path / "voda" / "__init__.py").write_text("raise SystemExit(9)")
    path, _ = await a_log(tmp_path)
    monkeypatch.chdir(tmp_path)
    async with running(path) as runner:
        made = runner.ask(a_question(), ANN)
        await until(lambda: runner.get(made.what_if_id, ANN).state in ("done", "failed"))
        assert runner.get(made.what_if_id, ANN).error == ""


async def test_what_if_when_a_user_asks_too_much_is_refused_and_others_are_not(tmp_path: Path) -> None:
    runner = WhatIfRunner(str(tmp_path / "log.db"), SystemClock())
    first = runner.ask(a_question(1), ANN)
    assert runner.ask(a_question(1), ANN) == first
    runner.ask(a_question(2), ANN)
    with pytest.raises(TooManyRequests, match="2 what-ifs of ann"):
        runner.ask(a_question(3), ANN)
    runner.ask(a_question(3), BOB)
    with pytest.raises(NotFound):
        runner.get(first.what_if_id, BOB)
    assert runner.get(first.what_if_id, ADMIN) == first
    runner.drop(first.what_if_id, ANN)
    runner.ask(a_question(3), ANN)
    for number in range(5):
        runner.ask(a_question(9), Caller(user=f"user-{number}", role="viewer"))
    with pytest.raises(TooManyRequests, match="8 what-ifs are under way"):
        runner.ask(a_question(9), Caller(user="late", role="user"))


async def test_what_if_when_it_is_dropped_then_its_process_ends_and_the_next_is_answered(tmp_path: Path) -> None:
    path, store = await a_log(tmp_path)
    async with running(path) as runner:
        first, second = runner.ask(a_question(1), ANN), runner.ask(a_question(2), ANN)
        await until(lambda: runner.get(first.what_if_id, ANN).state == "running")
        runner.drop(first.what_if_id, ANN)
        await until(lambda: runner.get(second.what_if_id, ANN).state == "done")
    await store.close()


async def test_what_if_when_it_takes_too_long_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner_module, "_LONGEST_S", 0.01)
    path, store = await a_log(tmp_path)
    async with running(path) as runner:
        made = runner.ask(a_question(), ANN)
        await until(lambda: runner.get(made.what_if_id, ANN).state == "failed")
        assert "takes longer than" in runner.get(made.what_if_id, ANN).error
    await store.close()


async def test_what_if_when_many_were_answered_then_the_oldest_are_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner_module, "_MOST_KEPT", 2)
    async with running(tmp_path / "none.db") as runner:
        asked = []
        for number in range(4):
            made = runner.ask(a_question(number), ANN)
            asked.append(made.what_if_id)
            await until(lambda made=made: runner.get(made.what_if_id, ANN).state == "failed")  # type: ignore[misc]
        with pytest.raises(NotFound):
            runner.get(asked[0], ANN)
        assert runner.get(asked[-1], ANN).state == "failed"
