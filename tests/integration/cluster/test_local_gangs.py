"""Agents that meet, as plain shells: who of them runs when, and whose end counts."""

import json
import os
import signal
from contextlib import suppress
from typing import Any

from tests.local_jobs import FOREVER, Ground, a_torch_job
from tests.waiting import until
from voda.cluster.local.folder import JobFolder
from voda.events.types import JobCompleted, ProgramFailed, WorkerExited
from voda.kinds.pod_template import TorchElasticPolicy
from voda.process_table import marked_processes

# Each notes for how many it was started, and ends badly when it is told to, as torchrun does.
_AGENT = f"trap 'sleep 0.2; exit 1' TERM; echo up $PET_NODE_RANK of $PET_NNODES; {FOREVER}"


async def start(ground: Ground, script: str, workers: int = 2, **fields: Any) -> None:
    await ground.start(a_torch_job("a", script, elastic=TorchElasticPolicy(), **fields), workers=workers)


async def until_up(ground: Ground, size: int, *, times: int = 1) -> None:
    """Wait until agents of a size have begun, for the n-th time."""

    def all_are() -> bool:
        logs = {index: ground.log(replica=f"worker-{index}") for index in range(size)}
        return all(log.count(f"up {index} of {size}\n") == times for index, log in logs.items())

    await until(all_are)


def counted(ground: Ground) -> tuple[int, int]:
    """Return how many failures and evictions the job has."""
    assert not any(isinstance(told, ProgramFailed) for told in ground.notices())
    record = ground.cluster.jobs["a"].record
    return record.failures, record.evictions


async def test_agents_when_resized_and_back_at_once_begin_anew_and_nothing_is_counted(ground: Ground) -> None:
    await start(ground, _AGENT)
    await until_up(ground, 2)
    await ground.resize("a", 3)
    await ground.resize("a", 2)
    await until_up(ground, 2, times=2)
    await ground.resize("a", 1)
    await until_up(ground, 1)
    assert counted(ground) == (0, 0)


async def test_agents_when_others_tell_one_to_end_begin_anew_where_they_are(ground: Ground) -> None:
    await start(ground, _AGENT)
    await until_up(ground, 2)
    for pid, _ in marked_processes(ground.folder / "a/.voda/replicas/worker-1"):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
    await until_up(ground, 2, times=2)
    assert counted(ground) == (0, 1)
    assert await ground.workers() == (0, 1)


async def test_agent_when_its_job_is_done_and_it_stays_is_killed_after_the_grace(ground: Ground) -> None:
    stays = f"trap 'touch heeded' TERM; touch up; {FOREVER}"
    script = f"[ $PET_NODE_RANK = 1 ] || until [ -e up ]; do sleep 0.01; done; [ $PET_NODE_RANK = 0 ] || {{ {stays}; }}"
    await start(ground, script, grace_s=0.5)
    await ground.until_told(JobCompleted(job_id="a"), WorkerExited(job_id="a", workers=(1,), cause="finished"))
    assert not (ground.folder / "a/heeded").exists()


async def test_agents_of_an_older_voda_that_noted_no_generation_go_on(ground: Ground) -> None:
    await start(ground, _AGENT)
    await until_up(ground, 2)
    await ground.cluster.close()
    path = ground.folder / "a/.voda/record.json"
    record = json.loads(path.read_text())
    del record["generation"]
    path.write_text(json.dumps(record))
    await ground.open()
    assert ground.cluster.jobs["a"].record.generation == (0, 1)
    assert json.loads(path.read_text())["generation"] == [0, 1]
    await ground.resize("a", 3)
    await until_up(ground, 3)
    # Neither was told to end before that.
    assert [ground.log(replica=f"worker-{index}").count("up") for index in (0, 1)] == [2, 2]


async def test_agents_of_an_older_voda_of_which_one_is_gone_begin_anew(ground: Ground) -> None:
    await start(ground, _AGENT)
    await until_up(ground, 2)
    await ground.cluster.close()
    path = ground.folder / "a/.voda/record.json"
    record = json.loads(path.read_text())
    del record["generation"]
    path.write_text(json.dumps(record))
    for pid, _ in marked_processes(ground.folder / "a/.voda/replicas/worker-1"):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    await until(lambda: not JobFolder(ground.folder, "a").replica("worker-1").is_locked())
    await ground.open()
    await until_up(ground, 2, times=2)
