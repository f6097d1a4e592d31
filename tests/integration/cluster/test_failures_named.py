"""How the failure of a rank is named on one machine, with the real torchrun: by its exception, its code, its signal, or
the memory limit, and not by what torchrun says of it.
"""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.local_jobs import Ground, a_ground, a_torch_job, an_mpi_job
from tests.needs import TORCH_VENV, needs_torch_venv
from tests.waiting import DEADLINE_S, until
from voda.cluster.local import failure_reports
from voda.cluster.local.isolation.cgroups import Cgroups, find_cgroups
from voda.cluster.local.isolation.limits import Limits
from voda.cluster.local.outputs import read_reason
from voda.cluster.local.processes.inner_failures import InnerFailures
from voda.cluster.local.run_spec import RunSpec
from voda.events.text.failures import end_text, failure_text
from voda.events.types import JobFailed, ProgramFailed
from voda.programs.last_words import LastWords

_RANK = """
import os, sys
print("epoch 1", flush=True)
match sys.argv[1]:
    case "raise":
        raise ValueError("label 37 out of range")
    case "exit":
        print("cannot open /data/shard-1", file=sys.stderr)
        sys.exit(3)
    case "kill":
        os.kill(os.getpid(), 9)
    case "eat":
        b = bytearray(3 << 30)
    case "import":
        import no_such_module
"""
_BIN = TORCH_VENV / "bin"


def _job(tmp_path: Path, how: str, **fields: Any) -> RunSpec:
    script = tmp_path / "rank.py"
    script.write_text(_RANK)
    argv = (str(_BIN / "torchrun"), str(script), how)
    policy = fields.pop("policy", {"backoff_limit": 0})
    return a_torch_job("a", "", argv=argv, max_replicas=1, policy=policy, **fields)


async def _reason(ground: Ground, job: RunSpec) -> str:
    await ground.start(job)
    await until(lambda: any(isinstance(fact, JobFailed) for fact in ground.notices()))
    [failed] = [fact for fact in ground.told if isinstance(fact, JobFailed)]
    return failure_text(failed.reason)


def _groups_of_memory() -> Cgroups:
    """Return control groups of v1, which move no process of the tests; skip without those of memory."""
    groups = find_cgroups()
    groups = replace(groups, hierarchies=tuple(each for each in groups.hierarchies if not each.is_v2))
    if "memory" not in groups.controllers:
        pytest.skip(f"no control groups of memory here: {groups.obstacle}")
    return groups


@needs_torch_venv()
@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ("raise", "worker-0 ended with exit code 1: ValueError: label 37 out of range"),
        ("exit", "worker-0 ended with exit code 3; its last lines: epoch 1\ncannot open /data/shard-1"),
        ("kill", "worker-0 was killed by signal 9 (exit code 137); its last lines: epoch 1"),
    ],
)
async def test_rank_under_torchrun_when_it_fails_is_named_by_its_own_words_and_code(
    how: str, reason: str, tmp_path: Path
) -> None:
    async with a_ground(tmp_path / "jobs") as ground:
        assert await _reason(ground, _job(tmp_path, how)) == reason


@needs_torch_venv()
@pytest.mark.slow
async def test_rank_under_torchrun_when_killed_for_memory_is_named_by_its_limit(tmp_path: Path) -> None:
    groups = _groups_of_memory()
    async with a_ground(tmp_path / "jobs", settings={"cgroups": groups}) as ground:
        limits = {"worker": Limits(memory_bytes=2 << 30)}
        job = _job(tmp_path, "eat", limits=limits, policy={"backoff_limit": 1})
        await ground.start(job)
        await until(lambda: any(isinstance(fact, ProgramFailed) for fact in ground.notices()))
        [failed] = [fact for fact in ground.told if isinstance(fact, ProgramFailed)]
        assert end_text(failed.reason) == "was killed for memory: its limit is 2 GiB: epoch 1"
        assert (failed.next_try, failed.most_tries) == (2, 2)


_FAILS_TWICE = """
import os, time
restarts = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
print("starts", restarts, flush=True)
if restarts < 2:
    raise ValueError(f"label {restarts} out of range")
while True:
    time.sleep(0.05)
"""


@needs_torch_venv()
@pytest.mark.slow
async def test_rank_that_torchrun_starts_again_is_told_at_once_though_its_agent_goes_on(tmp_path: Path) -> None:
    script = tmp_path / "twice.py"
    script.write_text(_FAILS_TWICE)
    argv = (str(_BIN / "torchrun"), "--max-restarts=3", str(script))
    job = a_torch_job("a", "", argv=argv, max_replicas=1)
    async with a_ground(tmp_path / "jobs") as ground:
        watch = InnerFailures(ground.cluster._context, again_s=0.1)
        await ground.start(job)
        failures = await _until_failed_inside(ground, watch, times=2)
        assert end_text(failures[-1].reason) == "ended with exit code 1: ValueError: label 1 out of range"
        await ground.until_workers(0)


_LOSES_ONE = """
import subprocess, sys, time
eater = subprocess.run([sys.executable, "-c", "b = bytearray(300 << 20)"])
print("the loader was killed", eater.returncode, flush=True)
while True:
    time.sleep(0.05)
"""


@pytest.mark.slow
async def test_process_killed_for_memory_in_a_replica_that_goes_on_is_told_with_the_limit(tmp_path: Path) -> None:
    groups = _groups_of_memory()
    script = tmp_path / "loses.py"
    script.write_text(_LOSES_ONE)
    job = a_torch_job(
        "a", "", argv=("/usr/bin/python3", str(script)), limits={"worker": Limits(memory_bytes=100 << 20)}
    )
    async with a_ground(tmp_path / "jobs", settings={"cgroups": groups}) as ground:
        watch = InnerFailures(ground.cluster._context, again_s=0.1)
        await ground.start(job)
        [failed] = await _until_failed_inside(ground, watch, times=1)
        assert end_text(failed.reason).startswith("was killed for memory: its limit is 100 MiB")


_RANK_FAILED = "torch/distributed/elastic/agent.py:9] failed (exitcode: 1) local_rank: 0 (pid: 1) of binary: python"
_FAILS_AND_FAILS = f"""
: --max-restarts=9
fail() {{
  echo 'Traceback (most recent call last):'
  echo "ValueError: label $1"
  echo 'E1128 16:16:12.7 1 {_RANK_FAILED}'
}}
fail 0; touch failed
until [ -e again ]; do sleep 0.05; done
fail 1
sleep 1000
"""


async def test_failures_inside_a_replica_that_an_earlier_voda_saw_are_not_told_again(tmp_path: Path) -> None:
    async with a_ground(tmp_path) as ground:
        await ground.start(a_torch_job("a", _FAILS_AND_FAILS, max_replicas=1))
        await until((ground.folder / "a/failed").exists)
        await ground.cluster.close()
        await ground.open()
        watch = InnerFailures(ground.cluster._context, again_s=0.1)
        jobs = {job_id: job.state for job_id, job in ground.cluster.jobs.items()}

        def has_looked() -> bool:
            watch.look(jobs)
            return bool(watch._looks.get("a"))

        await until(has_looked)
        (ground.folder / "a/again").touch()
        [failed] = await _until_failed_inside(ground, watch, times=1)
        assert end_text(failed.reason).endswith("ValueError: label 1")


async def _until_failed_inside(ground: Ground, watch: InnerFailures, *, times: int) -> list[ProgramFailed]:
    def told() -> list[ProgramFailed]:
        watch.look({job_id: job.state for job_id, job in ground.cluster.jobs.items()})
        return [fact for fact in ground.notices() if isinstance(fact, ProgramFailed)]

    await until(lambda: sum(fact.times_inside for fact in told()) == times)
    return told()


@needs_torch_venv()
@pytest.mark.slow
async def test_rank_that_lacks_a_module_fails_its_job_at_once_and_is_told_which_python_it_had(tmp_path: Path) -> None:
    async with a_ground(tmp_path / "jobs", base={"PATH": f"{_BIN}:/usr/bin:/bin"}) as ground:
        reason = await _reason(ground, _job(tmp_path, "import", policy={"backoff_limit": 6}))
    assert "ModuleNotFoundError: No module named 'no_such_module'; " in reason
    assert f"its Python was {_BIN / 'python'}, its PATH {_BIN}:/usr/bin:/bin" in reason


@pytest.mark.parametrize("a_job", [an_mpi_job, a_torch_job], ids=["mpi", "torch"])
async def test_command_that_the_jobs_path_lacks_is_told_with_that_path(
    a_job: Callable[..., RunSpec], tmp_path: Path
) -> None:
    async with a_ground(tmp_path, base={"PATH": "/usr/bin:/bin"}) as ground:
        reason = await _reason(ground, a_job("a", "no-such-torchrun train.py"))
    assert "no-such-torchrun: not found; its Python was " in reason
    assert "its PATH /usr/bin:/bin" in reason


_TRACEBACK = "echo 'Traceback (most recent call last):'; echo '  File \"a.py\", line 1'; echo"
_FIRST_FAILS = f"""
if [ "$JOB_COMPLETION_INDEX" = 0 ]; then
  [ -e said ] && touch again && exec sleep 1000
  touch said
  {_TRACEBACK} 'ValueError: label 37'
  exit 1
fi
while [ ! -e again ]; do sleep 0.05; done
{_TRACEBACK} 'RuntimeError: Connection closed by peer'
exit 1
"""


async def test_worker_that_only_speaks_of_another_is_told_with_the_words_of_that_one(tmp_path: Path) -> None:
    async with a_ground(tmp_path) as ground:
        job = a_torch_job("a", _FIRST_FAILS, index_variable="JOB_COMPLETION_INDEX", min_replicas=1)
        await ground.start(job, workers=2)

        def told() -> list[str]:
            return [end_text(fact.reason) for fact in ground.notices() if isinstance(fact, ProgramFailed)]

        await until(lambda: told() == ["ended with exit code 1: ValueError: label 37"])
        await ground.until_workers(1)
        # It is started again, and the other one fails after that.
        await ground.resize("a", 2)
        await until(lambda: len(told()) == 2)
        assert told()[1] == "ended with exit code 1: worker-0: ValueError: label 37"


_LACKS = f"{_TRACEBACK} \"ModuleNotFoundError: No module named 'wandb'\""


@pytest.mark.parametrize(
    ("end", "is_tried_again"),
    [("exit 1", False), ("exit 3", True), ("kill -9 $$", True), ("echo 'going on without'; exit 1", True)],
)
async def test_job_that_lacks_a_module_is_tried_again_where_it_ended_of_something_else(
    end: str, is_tried_again: bool, tmp_path: Path
) -> None:
    async with a_ground(tmp_path) as ground:
        await ground.start(a_torch_job("a", f"{_LACKS}; {end}", max_replicas=1))
        await until(lambda: any(isinstance(fact, ProgramFailed | JobFailed) for fact in ground.notices()))
        assert any(isinstance(fact, ProgramFailed) for fact in ground.told) == is_tried_again


async def test_job_that_lacks_a_module_fails_also_where_it_rests_when_its_words_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rests = threading.Event()

    def read_late(*known: Any) -> LastWords:
        rests.wait(DEADLINE_S)
        return read_reason(*known)

    monkeypatch.setattr(failure_reports, "read_reason", read_late)
    monkeypatch.setattr(failure_reports, "_LAST_LINES_S", DEADLINE_S)
    async with a_ground(tmp_path) as ground:
        await ground.start(a_torch_job("a", f"{_LACKS}; exit 1", max_replicas=1))
        await until(lambda: ground.cluster.jobs["a"].record.state == "halted")
        rests.set()
        await until(lambda: any(isinstance(fact, ProgramFailed | JobFailed) for fact in ground.notices()))
        [failed] = [fact for fact in ground.told if isinstance(fact, ProgramFailed | JobFailed)]
        assert isinstance(failed, JobFailed)
