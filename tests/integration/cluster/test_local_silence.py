"""Jobs that print nothing after a start or a resize, on real outputs."""

from pathlib import Path

from tests.local_jobs import Ground, a_ground, a_torch_job
from tests.waiting import until
from voda.cluster.local.processes.silence import SilenceWatch
from voda.events.types import JobSilent

_AT_ITS_WORD = """
while :; do
  if [ -e say ]; then cat say; rm say; fi
  sleep 0.05
done
"""


class _Watch:
    """Looks whenever it is asked, at jobs that are silent after a moment."""

    def __init__(self, ground: Ground) -> None:
        self._ground = ground
        self._watch = SilenceWatch(ground.cluster._context, silent_s=0.2, again_s=0.05)

    def told(self) -> list[tuple[bool, int]]:
        """Look, and return what was told so far: whether it is silent, and its workers before the change."""
        self._watch.look({job_id: job.state for job_id, job in self._ground.cluster.jobs.items()})
        silent = [fact for fact in self._ground.notices() if isinstance(fact, JobSilent)]
        return [(fact.since is not None, fact.workers_before) for fact in silent]

    async def until_told(self, *expected: tuple[bool, int]) -> None:
        await until(lambda: self.told() == [*expected])


def _say(ground: Ground, text: str) -> None:
    # Its folder is where it works; a rename, so that it is read whole.
    (ground.folder / "a/said").write_text(text)
    (ground.folder / "a/said").rename(ground.folder / "a/say")


async def test_job_that_prints_nothing_after_its_start_and_its_resize_is_silent_until_it_prints(tmp_path: Path) -> None:
    async with a_ground(tmp_path) as ground:
        watch = _Watch(ground)
        await ground.start(a_torch_job("a", _AT_ITS_WORD, min_replicas=1))
        await watch.until_told((True, 0))
        assert ground.cluster.jobs["a"].record.silent_since > 0
        _say(ground, "epoch 1\n")
        await watch.until_told((True, 0), (False, 0))
        await ground.resize("a", 2)
        await watch.until_told((True, 0), (False, 0), (True, 1))
        # Any change begins anew.
        await ground.resize("a", 1)
        await watch.until_told((True, 0), (False, 0), (True, 1), (False, 0), (True, 2))


async def test_job_when_only_torchrun_prints_is_silent(tmp_path: Path) -> None:
    warned = (
        "W1128 16:20:15.481000 137 torch/distributed/elastic/multiprocessing/api.py:1028] Sending process 1 SIGTERM\n"
    )
    async with a_ground(tmp_path) as ground:
        watch = _Watch(ground)
        await ground.start(a_torch_job("a", f"printf '{warned}'; {_AT_ITS_WORD}"))
        await ground.until_logged("SIGTERM", replica="worker-0")
        await watch.until_told((True, 0))


async def test_job_that_was_silent_when_voda_ended_is_so_until_it_prints_and_another_is_not_judged(
    tmp_path: Path,
) -> None:
    async with a_ground(tmp_path) as ground:
        watch = _Watch(ground)
        await ground.start(a_torch_job("a", _AT_ITS_WORD))
        await watch.until_told((True, 0))
        await ground.start(a_torch_job("b", "echo up; while :; do sleep 0.05; done"))
        await ground.until_logged("up", job_id="b", replica="worker-0")
        await ground.cluster.close()
        ground.told.clear()
        await ground.open()
        watch = _Watch(ground)
        assert watch.told() == []
        await until(lambda: watch.told() == [] and watch._watch._jobs["a"].sizes is not None)
        _say(ground, "epoch 1\n")
        await watch.until_told((False, 0))
        assert ground.cluster.jobs["a"].record.silent_since == 0
