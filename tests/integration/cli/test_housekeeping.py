"""`voda prune` and `voda usage`, against the real API and real folders."""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from tests.builders import a_spec
from tests.served import Server, served
from voda.cli.commands.service import prune
from voda.domain.errors import InvalidInput, PermanentError
from voda.events.types import JobCompleted, JobSubmitted, WorkerExited, WorkerStarted


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Server]:
    """A server with the folders of two ended jobs, ada's and bob's, and of a live one."""
    jobs = tmp_path / "jobs"
    with served(tmp_path, jobs=jobs) as server:
        for job_id, user in (("one", "ada"), ("two", "bob"), ("live", "ada")):
            (jobs / job_id / "logs").mkdir(parents=True)
            (jobs / job_id / "logs" / "worker-0.log").write_text("hello\n" * 1_000)
            server.happens(JobSubmitted(spec=a_spec(job_id, name=job_id, user=user, gpus_per_replica=2)))
            server.happens(WorkerStarted(job_id=job_id, workers={0: "n1"}))
        for job_id in ("one", "two"):
            server.happens(WorkerExited(job_id=job_id, workers=(0,), cause="finished"), JobCompleted(job_id=job_id))
        yield server


def test_prune_when_dry_shows_what_would_go_and_deletes_nothing(kept: Server) -> None:
    shown = kept.voda("prune", "--older-than", "0", "--dry-run").stdout.splitlines()
    assert shown[0].split() == ["JOB", "USER", "ENDED", "SIZE", "BECAUSE", "OF"]
    assert [line.split()[0] for line in shown[1:3]] == ["one", "two"]
    assert "what stays: 0 folders of ended jobs, 0 B" in shown[3]
    assert sorted(path.name for path in (kept.home / "jobs").iterdir()) == ["live", "one", "two"]


def test_prune_when_nobody_can_answer_deletes_nothing(kept: Server) -> None:
    with pytest.raises(InvalidInput, match="give --yes"):
        kept.voda("prune", "--older-than", "0")
    assert (kept.home / "jobs" / "one").exists()


@pytest.mark.parametrize(("answer", "status", "left"), [("n", 1, ["live", "one", "two"]), ("y", 0, ["live"])])
def test_prune_when_asked_does_what_is_answered(
    kept: Server, monkeypatch: pytest.MonkeyPatch, answer: str, status: int, left: list[str]
) -> None:
    monkeypatch.setattr(prune, "_refuse_without_terminal", lambda: None)
    said = kept.voda("prune", "--older-than", "0", exit_code=status, input=f"{answer}\n")
    assert "Delete 2 folders, " in said.stderr
    assert sorted(path.name for path in (kept.home / "jobs").iterdir()) == left


def test_prune_when_sure_deletes_what_a_user_left_and_logs_say_so(kept: Server) -> None:
    deleted = msgspec.json.decode(kept.voda("prune", "--older-than", "0s", "-u", "ada", "-y", "-o", "json").stdout)
    assert [one["job_id"] for one in deleted] == ["one"]
    assert sorted(path.name for path in (kept.home / "jobs").iterdir()) == ["live", "two"]
    with pytest.raises(PermanentError, match=r"its output was deleted on .* by admin"):
        kept.voda("logs", "one")
    assert "by admin, with all" in " ".join(kept.voda("describe", "one").stdout.split())
    told = " ".join(kept.voda("describe", "two").stdout.split())
    assert "in 1 file:" in told


def test_describe_when_an_output_was_cut_says_whose_and_how_much_may_be_printed(kept: Server) -> None:
    home = kept.home / "jobs" / "two" / ".voda" / "replicas" / "worker-0"
    home.mkdir(parents=True)
    (home / "cut").touch()
    told = " ".join(kept.voda("describe", "two").stdout.split())
    assert "of worker-0 only the end of the output is there: a job's output may take 1.0 GB" in told


def test_prune_by_size_takes_the_oldest_and_says_what_it_freed(kept: Server) -> None:
    assert "deleted 1 folder, " in kept.voda("prune", "--keep-size", "30kB", "--yes").stdout
    assert sorted(path.name for path in (kept.home / "jobs").iterdir()) == ["live", "two"]
    assert kept.voda("prune").stdout.startswith("nothing to delete: 1 folder of ended jobs")


def test_prune_where_no_folders_are_kept_says_so(tmp_path: Path) -> None:
    with served(tmp_path) as server:
        assert "on Kubernetes a job's output goes with its pods" in server.voda("prune").stderr


def test_prune_when_a_limit_is_none_names_the_option(kept: Server) -> None:
    said = kept.voda("prune", "--keep-size", "much", exit_code=2).stderr
    assert "--keep-size" in said
    assert "expected a size" in said
    said = kept.voda("prune", "--older-than", "soon", exit_code=2).stderr
    assert "--older-than" in said
    assert "expected a span" in said


@pytest.mark.parametrize("command", [("prune", "--yes", "--older-than"), ("settings", "--retention")])
def test_age_of_what_is_deleted_needs_a_unit(kept: Server, command: tuple[str, ...]) -> None:
    said = kept.voda(*command, "30", exit_code=2).stderr
    assert command[-1] in said
    assert "expected a span with its unit" in said


def test_settings_of_folders_are_written_as_people_write_them(kept: Server) -> None:
    told = kept.voda("settings", "--retention", "14d", "--retention-size", "0", "--output-size", "2GB").stdout
    assert "retention_s 2592000 (30d) -> 1209600 (14d)" in told
    assert "retention_bytes 20000000000 (20 GB) -> 0 (any size)" in told
    assert "output_bytes 1000000000 (1.0 GB) -> 2000000000 (2.0 GB)" in told


def test_usage_when_shown_has_a_line_for_each_user_and_the_total(kept: Server) -> None:
    _, head, *rows = kept.voda("usage").stdout.splitlines()
    assert head.split()[:3] == ["USER", "GPU-HOURS", "HOURS"]
    assert sorted(row.split()[0] for row in rows) == ["ada", "bob", "total"]
    assert rows[-1].split()[3:5] == ["3", "2"]


def test_usage_as_csv_and_json_has_the_same_rows(kept: Server) -> None:
    head, *rows = kept.voda("usage", "--by", "job", "-o", "csv").stdout.splitlines()
    assert head.startswith("job,jobs,submitted,started,completed")
    found = msgspec.json.decode(kept.voda("usage", "--by", "job", "-o", "json").stdout)
    assert {row.partition(",")[0] for row in rows} == {row["key"] for row in found["rows"]} == {"live", "one", "two"}


def test_usage_when_the_span_is_none_names_it(kept: Server) -> None:
    with pytest.raises(InvalidInput, match="expected a span before now"):
        kept.voda("usage", "--since", "lately")
