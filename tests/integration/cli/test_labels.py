"""Labels, what is chosen by them, deletion by choice, other names of commands, and versions."""

from pathlib import Path

import msgspec
import pytest

from tests.served import Server
from tests.service import a_manifest
from voda import __version__
from voda.domain.errors import InvalidField, InvalidInput, NotFound
from voda.events.types import JobCompleted


@pytest.fixture
def labelled(empty: Server) -> Server:
    """A server with three jobs: a and b of team vision, c of team speech."""
    for name, team, stage in (("a", "vision", "dev"), ("b", "vision", "prod"), ("c", "speech", "dev")):
        labels = ("--label", f"team={team}", "--label", f"stage={stage}")
        empty.voda("submit", "-", *labels, input=msgspec.json.encode(a_manifest(name)))
    return empty


def test_labels_given_at_submit_choose_jobs_everywhere(labelled: Server) -> None:
    def chosen(selector: str) -> str:
        return labelled.voda("get", "-l", selector, "-o", "name").stdout

    assert chosen("team=vision") == "a\nb\n"
    assert chosen("team=vision,stage!=prod") == "a\n"
    assert chosen("stage in (prod, test)") == "b\n"
    assert chosen("!team") == ""
    assert labelled.voda("queue", "-l", "team=speech", "-o", "name").stdout == "c\n"
    assert "stage=dev, team=vision" in labelled.voda("describe", "a").stdout
    assert '"labels":{"team":"vision","stage":"dev"}' in labelled.voda("get", "a", "-o", "json").stdout
    top = labelled.voda("top", "-l", "team=speech").stdout
    assert [line.split()[1] for line in top.splitlines() if "Submitted" in line] == ["c"]
    with pytest.raises(InvalidField, match="expected labels such as"):
        chosen("=")


def test_label_that_is_wrong_is_refused_by_its_option(empty: Server) -> None:
    with pytest.raises(InvalidInput, match="--label: expected KEY=VALUE, such as team=vision, got 'team'"):
        empty.voda("submit", "-", "--label", "team", input=msgspec.json.encode(a_manifest()))
    with pytest.raises(InvalidField, match=r"standard input: --label team: expected up to 63 letters"):
        empty.voda("submit", "-", "--label", "team=a b", input=msgspec.json.encode(a_manifest()))


def test_labels_of_a_program_are_in_its_manifest(empty: Server) -> None:
    shown = empty.voda("submit", "--print", "--label", "team=vision", "--", "sleep", "1").stdout
    assert "labels:\n    team: vision" in shown


def test_delete_by_choice_cancels_live_jobs_that_match_all_options(labelled: Server) -> None:
    labelled.happens(JobCompleted(job_id="a"))
    assert labelled.voda("delete", "-l", "team=vision", "--yes").stdout == "b is being canceled\n"
    done = labelled.voda("cancel", "-l", "team=vision", "--yes", exit_code=3)
    assert done.stderr == "voda: no live job of yours matches: nothing to delete\n"
    assert labelled.voda("delete", "--all", "--phase", "submitted", "--yes").stdout == "c is being canceled\n"


def test_delete_by_choice_asks_first_and_not_where_nobody_can_answer(
    labelled: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InvalidInput, match="nobody is here to be asked which jobs to cancel: give --yes"):
        labelled.voda("delete", "--all")
    monkeypatch.setattr("voda.cli.http.confirmation.is_answered", lambda: True)
    done = labelled.voda("delete", "--all", input="n\n", exit_code=1)
    assert "Cancel 3 jobs (a, b, c)?" in done.stderr
    assert "voda: nothing was canceled" in done.stderr
    assert labelled.voda("delete", "--user", "admin", input="y\n").stdout.count("is being canceled") == 3


def test_delete_needs_names_or_a_choice_and_not_both(labelled: Server) -> None:
    for arguments in ((), ("a", "--all"), ("a", "-l", "team=vision")):
        with pytest.raises(InvalidInput, match="expected the names of jobs, or one of --all"):
            labelled.voda("delete", *arguments)


def test_wait_by_labels_waits_for_the_jobs_that_are_live_now(labelled: Server) -> None:
    labelled.happens(JobCompleted(job_id="a"))
    assert labelled.voda("wait", "-l", "team", "--for", "waiting").stdout == "b is submitted\nc is submitted\n"
    with pytest.raises(NotFound, match="no live job has the labels 'team=none'"):
        labelled.voda("wait", "-l", "team=none")
    with pytest.raises(InvalidInput, match="expected the names of jobs, or labels"):
        labelled.voda("wait")


def test_other_names_do_the_same_and_are_one_line_of_the_help(server: Server) -> None:
    table = server.voda("get", "-o", "name").stdout
    assert server.voda("ps", "-o", "name").stdout == server.voda("ls", "-o", "name").stdout == table
    assert server.voda("status", "bert").stdout.startswith("Job        bert")
    assert server.voda("queue", "-o", "name").stdout == "bert\n"
    assert server.voda("cancel", "bert").stdout == "bert is being canceled\n"
    told = server.voda("--help").stdout
    assert "ps, ls = get; queue = get what waits; status = describe; cancel" in " ".join(told.split())
    assert "│ ps " not in told


def test_version_tells_client_and_server_also_where_none_runs(empty: Server, tmp_path: Path) -> None:
    lines = empty.voda("version").stdout.splitlines()
    assert lines == [f"client  {__version__}", f"server  {__version__}  {empty.service.url}"]
    told = msgspec.json.decode(empty.voda("version", "-o", "json").stdout)
    assert told == {"client": {"version": __version__}, "server": {"version": __version__, "url": empty.service.url}}
    nowhere = str(tmp_path / "nowhere")
    alone = empty.voda("version", "--home", nowhere)
    assert (alone.stdout, "no voda is running here" in alone.stderr) == (f"client  {__version__}\n", True)
    assert msgspec.json.decode(empty.voda("version", "--home", nowhere, "-o", "json").stdout)["server"] is None
