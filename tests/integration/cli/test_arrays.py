"""Arrays and dependencies on the command line, against the real API."""

import msgspec
import pytest

from tests.served import Server
from tests.service import a_manifest
from voda.domain.errors import InvalidInput, NotFound
from voda.domain.reasons.holds import ArrayBound
from voda.domain.reasons.nodes import Said
from voda.domain.reasons.outcomes import Waits
from voda.events.types import JobCanceled, JobCompleted, JobFailed, PlanAdopted, WorkerStarted


def submit(server: Server, name: str, *options: str) -> str:
    return server.voda("submit", "-", "--name", name, *options, input=msgspec.json.encode(a_manifest(name))).stdout


@pytest.fixture
def sweep(empty: Server) -> Server:
    """A server with an array of ten tasks: two at work, one that failed, one that completed."""
    submit(empty, "sweep", "--array", "0-9%2")
    empty.happens(
        PlanAdopted(
            pool="default",
            number=1,
            based_on=99,
            policy="elastic-fifo",
            placer="steady",
            cause="job.submitted",
            placed={"sweep-2": ("n1",), "sweep-3": ("n1",)},
            reasons={f"sweep-{n}": Waits(why=(ArrayBound(array="sweep", at_once=2),)) for n in range(4, 10)},
        ),
        JobCompleted(job_id="sweep-0"),
        JobFailed(job_id="sweep-1", reason=Said(text="exit code 1")),
        *(WorkerStarted(job_id=f"sweep-{n}", workers={0: "n1"}) for n in (2, 3)),
    )
    return empty


def test_submit_of_an_array_says_how_many_tasks_it_has(empty: Server) -> None:
    assert submit(empty, "sweep", "--array", "0-9%2").startswith(
        "sweep[0-9] submitted: 10 tasks, at most 2 at once, each MPIJob, 1 replica"
    )
    assert submit(empty, "dry", "--array", "1,3", "--dry-run").startswith("dry[1,3] would be submitted: 2 tasks, each")
    assert submit(empty, "all", "--array", "0-2", "-o", "name") == "all\n"
    assert submit(empty, "one", "--after", "sweep:any", "--after", "all").endswith(
        ", after array sweep:any, array all\n"
    )
    program = empty.voda("submit", "--array", "0-1", "--", "sleep", "1")
    assert program.stdout.startswith("sleep[0-1] submitted: 2 tasks")
    assert "annotation" not in program.stderr
    assert empty.voda("submit", "--array", "0-1", "--", "sleep", "1").stdout.startswith("sleep-2[0-1] submitted")


def test_submit_that_is_refused_names_the_option(empty: Server) -> None:
    with pytest.raises(InvalidInput, match=r"standard input: --array: expected a range that ascends, got '9-0'$"):
        submit(empty, "sweep", "--array", "9-0")
    with pytest.raises(
        InvalidInput, match=r"standard input: --after: there is no job or array 'nobody': submit it first$"
    ):
        submit(empty, "sweep", "--after", "nobody")


def test_get_has_one_line_for_an_array_and_one_for_each_task_where_asked(sweep: Server) -> None:
    submit(sweep, "other")
    head, array, other = sweep.voda("get").stdout.splitlines()
    assert array.split()[0] == "sweep[0-9]"
    assert "2 running, 6 waiting, 1 completed, 1 failed  2         1/10 10%" in array
    assert (other.split()[0], head.split()[0]) == ("other", "NAME")
    assert len(sweep.voda("get", "--tasks").stdout.splitlines()) == 1 + 8 + 1
    assert len(sweep.voda("get", "--all", "--tasks").stdout.splitlines()) == 1 + 10 + 1
    assert len(sweep.voda("get", "sweep").stdout.splitlines()) == 2
    wide = sweep.voda("get", "sweep", "-o", "wide").stdout.splitlines()
    assert len(wide) == 11
    assert wide[-1].endswith("waits: array sweep has at most 2 tasks at work at once")
    assert sweep.voda("get", "sweep", "-o", "name").stdout.split() == [f"sweep-{n}" for n in range(10)]
    assert len(msgspec.json.decode(sweep.voda("get", "sweep", "-o", "json").stdout)["items"]) == 10
    assert len(sweep.voda("get", "sweep-3", "other").stdout.splitlines()) == 3
    with pytest.raises(NotFound):
        sweep.voda("get", "sweeps")


def test_describe_shows_an_array_and_what_a_task_is_part_of(sweep: Server) -> None:
    shown = sweep.voda("describe", "sweep").stdout
    assert all(line == line.rstrip() for line in shown.splitlines())
    assert "Array      sweep[0-9]" in shown
    assert "10: 2 running, 6 waiting, 1 completed, 1 failed" in shown
    assert "2 of all tasks; at most 2 tasks at once" in shown
    assert sum(line.startswith("sweep-") for line in shown.splitlines()) == 10
    assert msgspec.json.decode(sweep.voda("describe", "sweep", "-o", "json").stdout)["count"] == 10
    submit(sweep, "report", "--after", "sweep:any")
    assert "task 4 of sweep[0-9], at most 2 tasks at once" in sweep.voda("describe", "sweep-4").stdout
    assert "After      array sweep:any" in sweep.voda("describe", "report").stdout
    with pytest.raises(NotFound, match="did you mean"):
        sweep.voda("describe", "sweep-11")


def test_command_for_one_job_says_that_it_is_an_array(sweep: Server) -> None:
    with pytest.raises(NotFound, match=r"^sweep is an array: name one of its tasks, sweep-0 to sweep-9$"):
        sweep.voda("logs", "sweep")
    with pytest.raises(NotFound, match=r"^sweep\[0-9\] is an array: name one of its tasks, sweep-0 to sweep-9$"):
        sweep.voda("explain", "sweep[0-9]")


def test_array_is_named_as_lists_show_it(sweep: Server) -> None:
    shown = sweep.voda("describe", "sweep[0-9]").stdout
    assert shown.splitlines()[0].split() == ["Array", "sweep[0-9]"]
    assert sweep.voda("delete", "sweep[0-9]").stdout == "sweep[0-9]: 8 tasks being canceled\n"
    with pytest.raises(NotFound, match="is not known"):
        sweep.voda("describe", "sweep[0-8]")


def test_delete_cancels_all_tasks_together(sweep: Server) -> None:
    assert sweep.voda("delete", "sweep", "--reason", "wrong data").stdout == "sweep[0-9]: 8 tasks being canceled\n"
    assert "wrong data" in sweep.voda("describe", "sweep-5").stdout
    sweep.happens(*(JobCanceled(job_id=f"sweep-{n}") for n in range(2, 10)))
    result = sweep.voda("delete", "sweep", exit_code=3)
    assert result.stderr == (
        "voda: sweep[0-9] ended (1 completed, 1 failed, 8 canceled) before: nothing to cancel; `voda prune` deletes the"
        " folders of ended jobs\n"
    )


def test_wait_for_an_array_waits_for_all_of_its_tasks(empty: Server) -> None:
    submit(empty, "sweep", "--array", "0-2")
    empty.happens(*(JobCompleted(job_id=f"sweep-{n}") for n in range(3)))
    shown = empty.voda("wait", "sweep", "sweep-1").stdout
    assert shown.splitlines().count("sweep-2 is completed") == 1
    submit(empty, "bad", "--array", "0-1")
    empty.happens(JobCompleted(job_id="bad-0"), JobFailed(job_id="bad-1", reason=Said(text="exit code 1")))
    assert "bad-1 is failed: exit code 1" in empty.voda("wait", "bad", exit_code=1).stderr
    with pytest.raises(NotFound):
        empty.voda("wait", "nobody")
