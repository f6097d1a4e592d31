"""Reports that contradict what is known: one sentence each, and nothing is learned from them."""

import pytest

from tests.builders import Log, a_job, a_spec
from voda.domain.reasons.nodes import Said
from voda.domain.settings import Settings
from voda.domain.state import Estimate
from voda.events.types import JobChanged, JobProgressed, JobSubmitted, ProgramFailed, WorkerExited, WorkerStarted
from voda.projections.learning import Learning
from voda.timetravel.report_doubts import doubt_text

SETTINGS = Settings(resize_cost_s=60.0)


def a_log() -> Log:
    """Return the log of a job of ten epochs on two workers that has reported 2.5 of them, the last at 300."""
    log = Log()
    log.add(JobSubmitted(spec=a_spec("a", category="resnet", max_replicas=8, epochs=10)), at=0)
    log.add(WorkerStarted(job_id="a", workers={0: "n1", 1: "n1"}), at=10)
    for done, epoch_s in ((1.0, 100.0), (2.0, 100.0), (2.5, None)):
        progressed(log, at=10 + 100 * done, done=done, epoch_s=epoch_s)
    return log


def progressed(log: Log, *, at: float, done: float, workers: int = 2, epoch_s: float | None = None) -> None:
    fact = JobProgressed(
        job_id="a", epochs_done=done, workers=workers, epoch_s=epoch_s, samples_per_s=10.0, epoch_samples=1000.0
    )
    log.add(fact, at=at)


def believed(log: Log) -> tuple[Estimate, str]:
    learning = Learning()
    for event in log.events:
        learning.apply(event)
    job = a_job("a", category="resnet", max_replicas=8, epochs=10, epochs_done=2.5)
    return learning.estimate(job, SETTINGS), doubt_text(learning.measurements("a"))


@pytest.mark.parametrize(
    ("done", "workers", "epoch_s", "sentence"),
    [
        (10.5, 2, None, "it says 10.5 epochs done, and the job has 10"),
        (1.5, 2, None, "it says 1.5 epochs done, of an epoch that is over: 2.5 were done before"),
        (2.25, 2, None, "it says 2.25 epochs done, fewer than the 2.5 before, and no worker has changed since"),
        (2.75, 1, None, "it is of 1 workers, and the job has 2"),
        (3.0, 2, 7200.0, "its last epoch took 7200 s by the program's clock, and it has run for 300 s"),
    ],
)
def test_report_that_contradicts_what_is_known_is_not_believed(
    done: float, workers: int, epoch_s: float | None, sentence: str
) -> None:
    log = a_log()
    before, said = believed(log)
    assert said == ""
    bad = JobProgressed(
        job_id="a", epochs_done=done, workers=workers, epoch_s=epoch_s, samples_per_s=5000.0, epoch_samples=7.0
    )
    log.add(bad, at=310)
    assert believed(log) == (before, f"the last report is not believed: {sentence}")
    progressed(log, at=320, done=2.6)
    assert believed(log)[1] == "", "the next one is"


def test_report_of_the_size_before_a_resize_is_not_believed_though_workers_are_processes() -> None:
    log = Log()
    log.add(JobSubmitted(spec=a_spec("a", category="resnet", max_replicas=8, epochs=10)), at=0)
    log.add(WorkerStarted(job_id="a", workers={0: "n1", 1: "n1"}), at=10)
    progressed(log, at=60, done=0.5, workers=8)
    log.add(WorkerExited(job_id="a", workers=(1,)), at=70)
    progressed(log, at=80, done=0.6, workers=8)
    assert believed(log)[1] == "the last report is not believed: it is of 8 workers, and the job has 4"
    progressed(log, at=90, done=0.7, workers=4)
    estimate, said = believed(log)
    assert said == ""
    assert estimate.speedup[2] == pytest.approx(1.0), "four processes a replica, two sizes"


def test_first_report_of_a_former_size_does_not_make_all_others_doubtful() -> None:
    log = Log()
    log.add(JobSubmitted(spec=a_spec("a", category="resnet", max_replicas=8, epochs=10)), at=0)
    log.add(WorkerStarted(job_id="a", workers=dict.fromkeys(range(4), "n1")), at=10)
    log.add(WorkerExited(job_id="a", workers=(2, 3)), at=60)
    progressed(log, at=61, done=0.5, workers=4)
    said = []
    for place in range(1, 8):
        progressed(log, at=61 + 60 * place, done=0.5 + 0.1 * place, workers=2)
        said.append(believed(log)[1])
    assert said == ["the last report is not believed: it is of 2 workers, and the job has 4"] * 4 + [""] * 3


def test_processes_that_are_no_multiple_of_the_workers_are_believed() -> None:
    log = Log()
    log.add(JobSubmitted(spec=a_spec("a", category="resnet", max_replicas=49, epochs=10)), at=0)
    log.add(WorkerStarted(job_id="a", workers=dict.fromkeys(range(49), "n1")), at=10)
    for done in (0.5, 0.6):
        progressed(log, at=60 + done, done=done, workers=1)
    assert believed(log)[1] == ""


def test_epochs_that_a_program_lost_as_it_began_anew_on_its_workers_are_believed_and_cost_no_restart() -> None:
    log = a_log()
    before = believed(log)[0].resize_cost_s
    failed = ProgramFailed(job_id="a", replica="worker-0", reason=Said(text="out of memory"), next_try=2)
    log.add(failed, at=310)
    progressed(log, at=400, done=1.5)
    estimate, said = believed(log)
    assert (estimate.resize_cost_s, said) == (before, "")


def test_doubt_of_whole_numbers_is_kept_byte_by_byte() -> None:
    log = a_log()
    for done, workers in ((10.5, 2), (2.75, 1)):
        progressed(log, at=310, done=done, workers=workers)
        learning, again = Learning(), Learning()
        for event in log.events:
            learning.apply(event)
        again.load(learning.dump())
        assert doubt_text(learning.measurements("a"))
        assert again.dump() == learning.dump()


def test_epochs_that_a_restart_lost_are_believed_and_part_of_its_cost() -> None:
    log = a_log()
    log.add(WorkerExited(job_id="a", workers=(0, 1), cause="failed"), at=270)
    log.add(WorkerStarted(job_id="a", workers={0: "n1", 1: "n1"}), at=280)
    # The restart took 30 s; then 10 s of training from the beginning of the epoch on, of which 60 s were lost.
    progressed(log, at=320, done=2.1)
    estimate, said = believed(log)
    assert said == ""
    assert estimate.resize_cost_s == pytest.approx((0.0 + 30.0 + 60.0) / 2), "the first start cost nothing"


def test_job_whose_epochs_are_declared_anew_may_report_more() -> None:
    log = a_log()
    log.add(JobChanged(job_id="a", epochs=20), at=300)
    progressed(log, at=310, done=12.0)
    assert believed(log)[1] == ""


def test_clock_that_was_set_back_between_a_change_and_its_report_costs_no_restart() -> None:
    log = a_log()
    log.add(WorkerStarted(job_id="a", workers={2: "n1"}), at=300)
    progressed(log, at=200, done=2.6, workers=3)
    assert believed(log)[0].resize_cost_s == believed(a_log())[0].resize_cost_s


def test_clock_that_jumped_ahead_costs_no_restart() -> None:
    log = a_log()
    log.add(WorkerStarted(job_id="a", workers={2: "n1"}), at=300)
    progressed(log, at=90_000, done=2.6, workers=3)
    assert believed(log)[0].resize_cost_s == believed(a_log())[0].resize_cost_s
