"""The commands that change something, against the real API."""

import asyncio
import re
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
import yaml

from tests.builders import a_node
from tests.served import Server, served
from tests.service import a_manifest
from voda.domain.errors import AlreadyExists, InvalidInput, NotFound
from voda.domain.reasons.nodes import Said
from voda.events.types import AnyFact, JobCanceled, JobCompleted, JobFailed, NodeChanged, NodeJoined, WorkerExited
from voda.projections.cluster.live_cluster import LiveCluster


def written(folder: Path, *manifests: object) -> str:
    file = folder / "job.yaml"
    file.write_text(yaml.safe_dump_all(manifests))
    return str(file)


def test_submit_prints_what_became_of_every_document(empty: Server, tmp_path: Path) -> None:
    file = written(tmp_path, a_manifest("one", min_replicas=1, max_replicas=4), a_manifest("two"))
    assert empty.voda("submit", file).stdout.splitlines() == [
        "one submitted: MPIJob, 1 to 4 replicas, pool default",
        "two submitted: MPIJob, 1 replica, pool default",
    ]
    assert empty.voda("get", "-o", "name").stdout.split() == ["one", "two"]


def test_submit_names_each_field_that_does_not_count_in_a_line(empty: Server, tmp_path: Path) -> None:
    manifest = a_manifest("one", min_replicas=9, max_replicas=9, workers=9)
    told = empty.voda("submit", written(tmp_path, manifest)).stderr.splitlines()
    assert any(
        line.startswith(
            "voda: one: Worker.replicas: it waits until nodes join or its minimum is less: it needs 9 workers,"
        )
        for line in told
    )
    assert not any("template.spec" in line for line in told)


def test_submit_with_options_overrides_the_manifest(empty: Server, tmp_path: Path) -> None:
    options = ["--name", "mine", "--min", "2", "--max", "3", "--priority", "7", "--epochs", "9", "--pool", "default"]
    told = empty.voda("submit", written(tmp_path, a_manifest()), *options, "-o", "json").stdout
    job = msgspec.json.decode(told)["job"]
    assert (job["job_id"], job["min_replicas"], job["max_replicas"], job["priority"]) == ("mine", 2, 3, 7)
    assert job["progress"]["epochs"] == 9


def test_submit_when_dry_submits_nothing(empty: Server, tmp_path: Path) -> None:
    assert "would be submitted" in empty.voda("submit", written(tmp_path, a_manifest()), "--dry-run").stdout
    assert empty.voda("get", "--all", "-o", "name").stdout == ""


def test_submit_with_one_key_twice_is_one_job(empty: Server, tmp_path: Path) -> None:
    file = written(tmp_path, a_manifest("one"), a_manifest("two"))
    empty.voda("submit", file, "--idempotency-key", "k")
    again = empty.voda("submit", file, "--idempotency-key", "k").stdout
    assert again.count("was already submitted with this key") == 2
    assert len(empty.voda("get", "-o", "name").stdout.split()) == 2


def test_submit_tells_the_folder_its_programs_begin_in(
    empty: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = written(tmp_path, a_manifest())
    monkeypatch.chdir(tmp_path)
    empty.voda("submit", file)
    (event,) = empty.voda("events", "--type", "job.submitted", "-o", "json").stdout.splitlines()
    assert msgspec.json.decode(event)["type"] == "job.submitted"
    spec = empty.does(_spec(empty))
    assert spec["metadata"]["annotations"]["voda.dev/working-dir"] == str(tmp_path)


async def _spec(server: Server) -> dict[str, dict[str, dict[str, str]]]:
    answer = await server.service.ask("GET", "/api/v1/jobs/digits/manifest")
    return dict(answer.json())


def test_submit_of_several_documents_submits_none_where_one_is_refused(empty: Server, tmp_path: Path) -> None:
    empty.voda("submit", written(tmp_path, a_manifest("taken")))
    wrong = {**a_manifest("three"), "kind": "Deployment"}
    file = written(tmp_path, a_manifest("one"), a_manifest("taken"), a_manifest("one"), wrong)
    with pytest.raises(InvalidInput, match=r"job\.yaml, document 4: kind: expected"):
        empty.voda("submit", file)
    assert empty.voda("get", "-o", "name").stdout.split() == ["taken"]


@pytest.mark.parametrize("option", [["--dry-run"], []], ids=["dry", "real"])
def test_submit_tells_of_every_file_that_is_refused(empty: Server, tmp_path: Path, option: list[str]) -> None:
    empty.voda("submit", written(tmp_path, a_manifest("taken")))
    (tmp_path / "many.yaml").write_text(
        yaml.safe_dump_all(
            [a_manifest("one"), a_manifest("taken"), a_manifest("one"), {**a_manifest("x"), "kind": "Y"}]
        )
    )
    (tmp_path / "bad.yaml").write_text("a: [")
    (tmp_path / "good.yaml").write_text(yaml.safe_dump(a_manifest("good")))
    files = [str(tmp_path / name) for name in ("bad.yaml", "many.yaml", "gone.yaml", "good.yaml")]
    result, error = empty.fails("submit", *files, *option)
    told = [*result.stderr.replace("voda: ", "").replace(f"{tmp_path}/", "").splitlines(), error.args[0]]
    told[-1] = told[-1].replace(f"{tmp_path}/", "")
    assert [line.partition(":")[0] for line in told if ".yaml" in line] == [
        "bad.yaml",
        "gone.yaml",
        "many.yaml, document 2",
        "many.yaml, document 3",
        "many.yaml, document 4",
    ]
    assert ("nothing is submitted: 5 of 7 are refused" in told) == (not option)
    assert ("good would be submitted" in result.stdout) == bool(option)
    assert empty.voda("get", "-o", "name").stdout.split() == ["taken"]


def test_submit_of_documents_that_come_after_each_other_submits_all(empty: Server, tmp_path: Path) -> None:
    file = written(
        tmp_path, a_manifest("prep"), a_manifest("train", after="prep"), a_manifest("eval", after="train:any")
    )
    assert "eval would be submitted" in empty.voda("submit", file, "--dry-run").stdout
    assert empty.voda("get", "--all", "-o", "name").stdout == ""
    assert "eval submitted: MPIJob, 1 replica, pool default, after train:any" in empty.voda("submit", file).stdout


def test_submit_of_several_documents_with_one_key_again_is_no_refusal(empty: Server, tmp_path: Path) -> None:
    file = written(tmp_path, a_manifest("one"), a_manifest("two"))
    empty.voda("submit", file, "--idempotency-key", "k")
    again = empty.voda("submit", file, "--idempotency-key", "k").stdout
    assert again.count("was already submitted with this key") == 2


def test_submit_gives_labels_by_a_short_option(empty: Server, tmp_path: Path) -> None:
    empty.voda("submit", written(tmp_path, a_manifest("one")), "-l", "team=vision", "-l", "stage=test")
    assert empty.voda("get", "-l", "team=vision,stage=test", "-o", "name").stdout == "one\n"


def test_submit_when_the_server_refuses_a_document_names_file_and_document(empty: Server, tmp_path: Path) -> None:
    file = written(tmp_path, a_manifest("one"), {**a_manifest("two"), "kind": "Deployment"})
    with pytest.raises(InvalidInput, match=r"job\.yaml, document 2: kind: expected"):
        empty.voda("submit", file)
    with pytest.raises(InvalidInput, match=r"job\.yaml: kind: expected"):
        empty.voda("submit", written(tmp_path, {**a_manifest("two"), "kind": "Deployment"}))


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--min", "3", "--max", "2"], "--max: expected no less than 3, which --min asks for at least, got 2"),
        (["--pool", "a100"], "--pool: there is no pool 'a100', expected one of default"),
        (["--name", "No Name"], "--name: "),
    ],
)
def test_submit_when_an_option_is_wrong_names_the_option(
    empty: Server, tmp_path: Path, options: list[str], sentence: str
) -> None:
    with pytest.raises(InvalidInput, match=re.escape(f"job.yaml: {sentence}")):
        empty.voda("submit", written(tmp_path, a_manifest()), *options)


def test_submit_when_the_answer_is_lost_is_made_once(empty: Server, tmp_path: Path) -> None:
    with empty.behind_a_relay(loses=1) as relay:
        result = empty.voda("submit", written(tmp_path, a_manifest("one")))
    assert relay.lost == 1
    assert "trying again" in result.stderr
    assert "one was already submitted with this key" in result.stdout
    assert empty.voda("get", "-o", "name").stdout == "one\n"


def test_submit_when_followed_ends_with_the_job(empty: Server, tmp_path: Path) -> None:
    _later(empty, JobCompleted(job_id="digits"))
    assert "digits: Completed" in empty.voda("submit", written(tmp_path, a_manifest()), "-w").stdout


def test_submit_when_followed_and_the_job_fails_exits_with_1(empty: Server, tmp_path: Path) -> None:
    _later(empty, JobFailed(job_id="digits", reason=Said(text="exit code 3")))
    shown = empty.voda("submit", written(tmp_path, a_manifest()), "-w", exit_code=1).stdout
    assert "digits: Failed" in shown
    assert "exit code 3" in shown


def _later(server: Server, fact: JobCompleted | JobFailed) -> None:
    """Have it happen when the job has been there for a moment."""
    server.begins(_once(server, lambda live: live.job(fact.job_id) is not None, fact))


async def _once(server: Server, is_due: Callable[[LiveCluster], bool], fact: AnyFact) -> None:
    for _ in range(1_000):
        if is_due(server.service.backend.journal.view.cluster):
            break
        await asyncio.sleep(0.03)
    await asyncio.sleep(0.3)
    await server.service.happens(fact)


def test_scale_tells_what_changed(server: Server) -> None:
    assert server.voda("scale", "digits", "--max", "2", "--priority", "3").stdout == (
        "digits: max 4 -> 2, priority 0 -> 3\n"
    )
    assert server.voda("scale", "digits", "--max", "2").stdout == "digits: no change\n"
    assert server.voda("get", "digits").stdout.splitlines()[1].split()[2] == "2/1/2"


def test_scale_when_it_cannot_be_is_refused_in_the_servers_words(server: Server) -> None:
    with pytest.raises(InvalidInput, match=r"^--min: expected 4 or less, the job's maximum, got 9: change --max too$"):
        server.voda("scale", "digits", "--min", "9")
    server.voda("scale", "digits", "--min", "2")
    with pytest.raises(InvalidInput, match=r"^--max: expected 2 or more, the job's minimum, got 1: change --min too$"):
        server.voda("scale", "digits", "--max", "1")
    with pytest.raises(InvalidInput, match=r"^--max: expected 3 or more, the minimum, got 1$"):
        server.voda("scale", "digits", "--min", "3", "--max", "1")
    with pytest.raises(InvalidInput, match="nothing to change"):
        server.voda("scale", "digits")
    with pytest.raises(NotFound, match="gone"):
        server.voda("scale", "gone", "--min", "1")


def test_scale_takes_the_workers_as_submit_does(server: Server) -> None:
    assert (
        server.voda("scale", "digits", "--workers", "2-3").stdout == "digits: min 1 -> 2, max 4 -> 3, replicas 1 -> 2\n"
    )
    assert server.voda("scale", "digits", "--workers", "1").stdout.startswith("digits: min 2 -> 1, max 3 -> 1")
    for text in ("0", "-2", "two", "1-", ""):
        with pytest.raises(
            InvalidInput, match=rf"^--workers: expected 1 to 4,096, such as 2, 1-4, 2-16:2 or 1,2,4,8, got '{text}'$"
        ):
            server.voda("scale", "digits", f"--workers={text}")
    with pytest.raises(InvalidInput, match=r"^--workers is both --min and --max: give it, or them$"):
        server.voda("scale", "digits", "--workers", "2", "--max", "3")


def test_scale_takes_a_bare_size_for_the_workers(server: Server) -> None:
    assert server.voda("scale", "digits", "2-3").stdout == "digits: min 1 -> 2, max 4 -> 3, replicas 1 -> 2\n"
    assert server.voda("scale", "digits", "3").stdout == "digits: min 2 -> 3, replicas 2 -> 3\n"
    with pytest.raises(InvalidInput, match=r"^2 and --workers 3 both say how many workers: give one of them$"):
        server.voda("scale", "digits", "2", "--workers", "3")
    with pytest.raises(InvalidInput, match=r"^expected 1 to 4,096, such as 2, 1-4, 2-16:2 or 1,2,4,8, got 'two'$"):
        server.voda("scale", "digits", "two")
    with pytest.raises(InvalidInput, match=r"^expected 1 to 4,096, such as 2, 1-4, 2-16:2 or 1,2,4,8, got ''$"):
        server.voda("scale", "digits", "", "--priority", "3")
    with pytest.raises(InvalidInput, match=r"^nothing to change: give the workers \(2 or 1-4\), --min"):
        server.voda("scale", "digits")


def test_scale_to_sizes_has_the_job_keep_to_them_and_says_which_they_are(server: Server) -> None:
    assert server.voda("scale", "digits", "1,2,4").stdout == "digits: sizes all -> 1,2,4\n"
    described = " ".join(server.voda("describe", "digits").stdout.split())
    assert "(minimum 1, maximum 4, sizes 1,2,4, requested 1)" in described
    for size in ("3", "1-3"):
        with pytest.raises(
            InvalidInput,
            match=r"^job digits can run with 1,2,4 workers: expected one of these \(or new sizes, such as 1-4:1\)",
        ):
            server.voda("scale", "digits", size)
    with pytest.raises(InvalidInput, match=r"^--workers: job digits can run with 1,2,4 workers: "):
        server.voda("scale", "digits", "--workers", "3")
    assert server.voda("scale", "digits", "2-4").stdout == "digits: min 1 -> 2, replicas 1 -> 2\n"
    assert server.voda("scale", "digits", "2-6:1").stdout == "digits: max 4 -> 6, sizes 1,2,4 -> all\n"


def test_resume_of_a_job_that_ran_says_that_it_begins_again_without_a_checkpoint(server: Server) -> None:
    server.voda("halt", "digits")
    server.happens(WorkerExited(job_id="digits", workers=(0, 1)))
    assert server.voda("resume", "digits").stdout == (
        "digits may have GPUs again: with them it goes on from its checkpoint, or begins again if it has saved none\n"
    )


def test_settings_are_shown_and_changed(server: Server) -> None:
    assert "  ratelimit_s               30" in server.voda("settings").stdout
    assert server.voda("settings", "--ratelimit", "5", "--placer", "packed").stdout == (
        "pool default: placer steady -> packed, ratelimit_s 30 -> 5\n"
    )
    assert server.voda("set-policy", "ffdl").stdout == "pool default: policy elastic-fifo -> ffdl\n"
    assert msgspec.json.decode(server.voda("settings", "default", "-o", "json").stdout)["policy"] == "ffdl"
    assert server.voda("set-policy", "tiresias", "-P", "demote_gpu_s=60").stdout == (
        "pool default: policy ffdl -> tiresias, tiresias.demote_gpu_s 3600 -> 60\n"
    )
    assert "  tiresias.demote_gpu_s     60" in server.voda("settings").stdout
    assert "elastic-tiresias" not in server.voda("settings").stdout
    with pytest.raises(InvalidInput, match="tiresias has no parameter 'demote': it has demote_gpu_s, promote_knob"):
        server.voda("set-policy", "tiresias", "--parameter", "demote=1")
    with pytest.raises(InvalidInput, match=r"^--parameter fairness: expected a number <= 4\.0, got 9$"):
        server.voda("set-policy", "elastic-value", "-P", "fairness=9")
    assert "'--span-penalty': expected 0 or more" in server.voda("settings", "--span-penalty", "-1", exit_code=2).stderr
    with pytest.raises(InvalidInput, match="Did you mean 'elastic-fifo'"):
        server.voda("set-policy", "elastic-fivo")


def test_settings_of_several_pools_are_all_shown_and_changed_of_the_one_that_is_named(tmp_path: Path) -> None:
    with served(tmp_path, pools=("a100", "v100")) as server:
        shown = server.voda("settings").stdout.splitlines()
        assert [line for line in shown if line.startswith("pool")] == ["pool a100", "pool default", "pool v100"]
        assert server.voda("settings", "--pool", "v100", "--ratelimit", "5").stdout == (
            "pool v100: ratelimit_s 30 -> 5\n"
        )
        with pytest.raises(InvalidInput, match="which pool"):
            server.voda("settings", "--ratelimit", "7")


def test_delete_cancels_and_spares_the_others_where_one_is_unknown(server: Server) -> None:
    with pytest.raises(NotFound, match="nobody"):
        server.voda("delete", "digits", "nobody", "bert", "--reason", "wrong data")
    told = server.voda("events", "--type", "job.cancel_requested").stdout.splitlines()
    assert [line.partition(": ")[2] for line in told] == ["cancellation requested by admin: wrong data"] * 2


def test_delete_now_kills_also_what_is_being_canceled(server: Server) -> None:
    server.voda("delete", "digits")
    server.voda("delete", "digits", "--now", "--reason", "it hangs")
    server.voda("delete", "--all", "--now", "--yes")
    told = server.voda("events", "--type", "job.cancel_requested").stdout.splitlines()
    assert [line.partition(": ")[2].partition(": ")[0] for line in told] == [
        "cancellation requested by admin",
        *["cancellation requested by admin, at once"] * 3,
    ]
    assert told[1].endswith(": it hangs")


def test_delete_of_an_ended_job_says_that_nothing_was_done(server: Server) -> None:
    server.does(server.service.happens(JobCompleted(job_id="digits")))
    done = server.voda("delete", "digits", "bert", exit_code=3)
    assert (
        done.stderr
        == "voda: digits ended (completed) before: nothing to cancel; `voda prune` deletes the folders of ended jobs\n"
    )
    assert done.stdout == "bert is being canceled\n"


def test_delete_when_told_to_wait_returns_with_the_job_gone(server: Server) -> None:
    server.begins(_once(server, lambda live: live.jobs("default")["bert"].is_canceling, JobCanceled(job_id="bert")))
    assert server.voda("delete", "bert", "--wait").stdout == "bert is being canceled\nbert is canceled\n"


def test_halt_and_resume_tell_what_happens_and_the_job_shows_it(server: Server) -> None:
    assert server.voda("halt", "digits", "bert", "--reason", "disk is full").stdout == (
        "digits is being halted: 2 workers will stop; once resumed it goes on from its checkpoint,"
        " or begins again if it has saved none\nbert is halted\n"
    )
    assert [line.split()[1] for line in server.voda("get").stdout.splitlines()[1:]] == ["Halting", "Running", "Halted"]
    assert server.voda("get", "--phase", "halted", "-o", "name").stdout == "digits\nbert\n"
    described = server.voda("describe", "bert").stdout
    assert "Halted: no plan gives it workers until it is resumed" in described
    assert "halted by admin: disk is full" in described
    assert "voda resume bert" in described
    assert server.voda("resume", "bert", "digits").stdout == "bert may have GPUs again\ndigits runs on\n"
    assert server.voda("get", "bert").stdout.splitlines()[1].split()[1] != "Halted"
    told = server.voda("events", "bert").stdout
    assert "bert: halted by admin: disk is full" in told
    assert "bert: resumed" in told


def test_rerun_runs_an_ended_job_again_and_its_name_means_the_new_run(server: Server) -> None:
    with pytest.raises(AlreadyExists, match=r"^job bert is live, .* `voda delete bert` first"):
        server.voda("rerun", "bert")
    server.does(server.service.happens(JobCompleted(job_id="bert")))
    assert server.voda("rerun", "bert").stdout == "bert-2 submitted: runs bert again\n"
    assert server.voda("get", "bert", "-o", "name").stdout == "bert-2\n"
    assert server.voda("get", "@bert", "-o", "name").stdout == "bert\n"
    assert server.voda("delete", "bert").stdout == "bert-2 is being canceled\n"
    assert server.voda("delete", "@bert", exit_code=3).stderr == (
        "voda: bert ended (completed) before: nothing to cancel; `voda prune` deletes the folders of ended jobs\n"
    )


def test_nodes_are_listed_drained_and_undrained(server: Server) -> None:
    assert (
        server.voda("nodes").stdout == server.voda("get", "nodes").stdout == server.voda("nodes", "list", "n1").stdout
    )
    assert server.voda("nodes", "-o", "name").stdout == "n1\n"
    told = server.voda("nodes", "drain", "n1", "--reason", "new fan").stdout
    assert told == (
        "n1 is being drained: no other node takes workers, so 2 jobs will stop and wait until it is undrained"
        " (voda nodes undrain n1)\n"
    )
    (row,) = [line for line in server.voda("nodes").stdout.splitlines() if line.startswith("n1")]
    assert "Ready,draining by admin: new fan" in row
    assert "drain" not in row[row.index("new fan") + len("new fan") :]
    assert server.voda("undrain", "n1").stdout == "n1 takes workers again\n"
    assert msgspec.json.decode(server.voda("drain", "n1", "-o", "json").stdout)["is_draining"]
    with pytest.raises(NotFound, match="node 'n9' is not known"):
        server.voda("nodes", "drain", "n9")
    assert "drain    " in server.voda("nodes", "--help").stdout
    server.voda("undrain", "n1")
    server.happens(NodeJoined(node=a_node("n2")))
    assert server.voda("drain", "n1").stdout == (
        "n1 is being drained: the next plan moves 3 GPUs of 2 jobs elsewhere; what finds no room there waits\n"
    )


def test_node_that_voda_drains_no_more_says_what_else_keeps_workers_away(server: Server) -> None:
    server.happens(NodeChanged(node=a_node("n1", gpus=4, is_schedulable=False)))
    assert "but the cluster has it cordoned" in server.voda("nodes", "undrain", "n1").stdout
    server.happens(NodeChanged(node=a_node("n1", gpus=4, is_ready=False)))
    assert "but it is silent" in server.voda("nodes", "undrain", "n1").stdout


def test_scale_to_what_no_node_has_room_for_is_told_and_stands(server: Server) -> None:
    told = server.voda("scale", "bert", "6")
    assert told.stderr.splitlines()[-1] == (
        "voda: bert: it waits until nodes join or its minimum is less: it needs 6 workers, and pool default has room"
        " for 4 when empty"
    )
    assert server.voda("scale", "bert", "1-3").stderr == ""
