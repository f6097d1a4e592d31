"""Claims about starts that are recorded while a program pauses after a failure."""

from datetime import UTC, datetime

from tests.builders import Log
from voda.cli.render.awaited_starts import AwaitedStarts
from voda.domain.reasons.nodes import Said
from voda.events.types import AnyFact, ProgramFailed, WorkerStarted

FAILED = ProgramFailed(
    job_id="a",
    replica="worker-0",
    reason=Said(text="ended with exit code 3"),
    next_try=2,
    most_tries=7,
    next_try_at=20.0,
)


def told(*facts: tuple[float, AnyFact]) -> list[str]:
    log, starts = Log(), AwaitedStarts()

    def when(instant: datetime) -> str:
        return f"{instant.astimezone(UTC):%H:%M:%S}"

    return [starts.text(log.add(fact, at=at), when) for at, fact in facts]


def test_start_while_the_program_pauses_says_when_it_begins() -> None:
    one, two = (WorkerStarted(job_id="a", workers=dict.fromkeys(range(size), "n1")) for size in (1, 2))
    assert told((10, one), (11, FAILED), (12, one), (13, two), (20, one)) == [
        "1 worker started on n1",
        "worker-0 ended with exit code 3; it will be started again, try 2 of 7",
        "1 worker has its GPUs on n1 and begins at 00:00:20",
        "2 workers have their GPUs on n1 x2 and begin at 00:00:20",
        "1 worker started on n1",
    ]


def test_start_of_another_job_is_told_as_it_is() -> None:
    other = WorkerStarted(job_id="b", workers={0: "n1"})
    assert told((11, FAILED), (12, other))[1] == "1 worker started on n1"
