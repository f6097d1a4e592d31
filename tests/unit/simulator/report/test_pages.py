"""The table and the page, made of a small run with hostile names."""

from html.parser import HTMLParser
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace
from rich.console import Console

from tests.builders import Log, a_node, a_spec
from voda.domain.errors import InvalidInput
from voda.events.types import JobCompleted, JobSubmitted, NodeJoined, WorkerExited, WorkerStarted
from voda.projections.history import History
from voda.projections.timeline import Timeline
from voda.simulator.metrics import Execution, RunResult, measure
from voda.simulator.report.comparison_table import RunOutcome, comparison_table
from voda.simulator.report.pages import recorded_run, results_json, timeline_page, write_report

HOSTILE = "<script>alert('job')</script>&\"x"
COLUMNS = [
    *("workload", "policy", "placer", "jobs", "avg_jct_s", "p50_jct_s", "p90_jct_s", "p99_jct_s", "makespan_s"),
    *("avg_queueing_s", "restarts_per_job", "migrations_per_job", "spanning_jobs", "gpu_hours", "utilisation"),
    *("unfair_share", "worst_rho", "decision_p95_s", "wall_s"),
]


def a_log(jobs: int, name: str = "job") -> Log:
    """Jobs one after another on four GPUs, an hour each."""
    log = Log()
    log.add(NodeJoined(node=a_node("n1<b>")), at=0)
    for number in range(jobs):
        spec = a_spec(f"{name}{number}", max_replicas=4, category=f"{name}s")
        log.add(JobSubmitted(spec=spec), at=3600 * number)
        log.add(WorkerStarted(job_id=spec.job_id, workers=dict.fromkeys(range(4), "n1<b>")), at=3600 * number + 60)
        log.add(JobCompleted(job_id=spec.job_id), at=3600 * (number + 1))
        log.add(WorkerExited(job_id=spec.job_id, workers=(0, 1, 2, 3), cause="finished"), at=3600 * (number + 1))
    return log


def a_run(
    policy: str = "fifo", *, placer: str = "steady", jobs: int = 3, name: str = "job", log: Path | None = None
) -> RunOutcome:
    history, timeline = History(), Timeline()
    for event in a_log(jobs, name).events:
        history.apply(event)
        timeline.apply(event)
    execution = Execution(workload="w<i>", policy=policy, placer=placer, decisions_s=(0.001,), wall_s=1.5)
    result = measure(history, timeline, execution, lambda _job_id, gpus: 3600 / gpus)
    return RunOutcome(result=result, history=history, timeline=timeline, source="made up", log=log)


def printed(runs: list[RunOutcome], width: int) -> list[str]:
    console = Console(width=width, force_terminal=False)
    with console.capture() as capture:
        console.print(comparison_table(runs, width))
    return capture.get().splitlines()


def page_of(directory: Path, runs: list[RunOutcome]) -> str:
    return write_report(directory, runs, command="voda simulate --all", seed=7).read_text(encoding="utf-8")


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()
        self.attributes: list[tuple[str, str]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.add(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        if tag not in {"meta"}:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.add(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.mark.parametrize("width", [80, 110, 200])
def test_table_fits_its_terminal_with_every_figure_in_it(width: int) -> None:
    runs = [a_run("elastic-tiresias"), a_run("elastic-tiresias", placer="packed")]
    lines = printed(runs, width)
    assert max(len(line.rstrip()) for line in lines) <= width
    text = " ".join(lines)
    assert "…" not in text
    assert all(head in text for head in ("JCT", "queueing", "restarts", "spanning", "hours", "unfair", "ρ", "decision"))


def test_table_takes_a_name_in_brackets_for_a_name() -> None:
    assert any("[red]x" in line for line in printed([a_run("[red]x")], 80))


def test_table_and_page_name_the_jobs_that_never_ended(tmp_path: Path) -> None:
    run = msgspec.structs.replace(a_run(), unfinished=("big-1", "big-2"))
    assert any("2 jobs could never run to their end" in line for line in printed([run], 200))
    assert "e.g. big-1" in page_of(tmp_path, [run])


def test_results_hold_the_figures_of_every_run_under_their_names(tmp_path: Path) -> None:
    runs = [a_run("fifo"), a_run("afs-l")]
    page_of(tmp_path, runs)
    written = (tmp_path / "results.json").read_bytes()
    assert written == results_json(runs)
    decoded = msgspec.json.decode(written, type=dict[str, list[RunResult]])
    assert decoded == {"runs": [run.result for run in runs]}
    assert list(msgspec.json.decode(written)["runs"][0]) == COLUMNS


def test_page_shows_hostile_names_as_text(tmp_path: Path) -> None:
    page = page_of(tmp_path, [a_run(HOSTILE, name=HOSTILE, log=tmp_path / "a b" / "log.jsonl")])
    tags = _Tags()
    tags.feed(page)
    assert tags.open == []
    assert "script" not in tags.seen
    assert not tags.seen & {"b", "i"}
    assert "&lt;script&gt;alert" in page


def test_page_needs_nothing_from_elsewhere(tmp_path: Path) -> None:
    tags = _Tags()
    tags.feed(page_of(tmp_path, [a_run(log=tmp_path / "fifo" / "log.jsonl")]))
    links = {value for name, value in tags.attributes if name in {"href", "src"}}
    assert links == {"results.json", "#run0", "fifo/log.jsonl"}


def test_page_tells_how_to_repeat_and_explore_the_run(tmp_path: Path) -> None:
    page = page_of(tmp_path, [a_run(log=tmp_path / "fifo" / "log.jsonl")])
    assert "voda simulate --all" in page
    assert "voda explain fifo/log.jsonl job0  # waited 1m 00s" in page


def test_page_of_a_run_without_jobs_is_a_page(tmp_path: Path) -> None:
    assert "0 jobs on 1 node with 4 GPUs" in page_of(tmp_path, [a_run(jobs=0)])


def test_names_of_runs_leave_the_picture_where_they_would_hide_a_line(tmp_path: Path) -> None:
    log, history = Log(), History()
    for number, jct_s in enumerate((1, 3500, 3600)):
        log.add(JobSubmitted(spec=a_spec(f"job{number}")), at=0)
        log.add(JobCompleted(job_id=f"job{number}"), at=jct_s)
    for event in log.events:
        history.apply(event)
    late = [replace(a_run(f"policy-{number}"), history=history) for number in range(8)]
    assert 'class="legend"' in page_of(tmp_path, late[:1])
    assert 'class="legend"' not in page_of(tmp_path, late)


def test_lead_when_all_runs_end_together_names_none_as_the_first(tmp_path: Path) -> None:
    slow, fast = a_run("fifo"), a_run("srjf")
    fast = replace(fast, result=replace(fast.result, avg_jct_s=fast.result.avg_jct_s / 2))
    page = page_of(tmp_path, [slow, fast])
    assert "The whole workload is done under each of them after 3h 00m." in page


def test_page_of_one_run_compares_nothing(tmp_path: Path) -> None:
    page = page_of(tmp_path, [a_run()])
    assert "The policies compared" not in page
    assert "The best of each column" not in page


def test_many_runs_are_named_below_the_distribution(tmp_path: Path) -> None:
    runs = [a_run(f"policy-{number}") for number in range(12)]
    assert page_of(tmp_path, runs).count('class="key"') == 12


def test_large_cluster_is_drawn_as_a_map(tmp_path: Path) -> None:
    log = Log()
    for number in range(100):
        log.add(NodeJoined(node=a_node(f"n{number}")), at=0)
    run = a_run()
    for event in log.events:
        run.timeline.apply(event)
    page = page_of(tmp_path, [run])
    assert "data:image/png;base64," in page
    assert 'class="job' not in page


def test_folder_that_cannot_be_made_is_named_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidInput, match="the report cannot be written there"):
        write_report(tmp_path / "file" / "out", [a_run()], command="voda", seed=0)


class Words(HTMLParser):
    """The words of a page, and its elements."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.words: list[str] = []
        self.elements: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append(tag)

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def timeline_of(log: Log) -> Words:
    history, timeline = History(), Timeline()
    for event in log.events:
        history.apply(event)
        timeline.apply(event)
    return Words(
        timeline_page(recorded_run(history, timeline, policy="fifo", placer="steady", source="my/<script>.db"))
    )


def a_recorded_log() -> Log:
    log = Log()
    log.add(NodeJoined(node=a_node("n1")), at=0)
    for job_id in ("done", "running"):
        log.add(JobSubmitted(spec=a_spec(job_id)), at=0)
    log.add(WorkerStarted(job_id="done", workers={0: "n1"}), at=60)
    log.add(WorkerStarted(job_id="running", workers={0: "n1"}), at=60)
    log.add(JobCompleted(job_id="done"), at=3600)
    log.add(WorkerExited(job_id="done", workers=(0,), cause="finished"), at=3600)
    return log


def test_page_when_jobs_ended_and_run_shows_both_and_lists_the_ended() -> None:
    page = timeline_of(a_recorded_log())
    assert {"done", "running"} <= set(page.words)
    assert page.elements.count("tr") == 2
    assert any("1 job still live" in words for words in page.words)


def test_page_when_nothing_ended_yet_is_drawn_up_to_the_end_of_the_log() -> None:
    log = Log()
    log.add(NodeJoined(node=a_node("n1")), at=0)
    log.add(JobSubmitted(spec=a_spec("running")), at=100)
    log.add(WorkerStarted(job_id="running", workers={0: "n1"}), at=200)
    log.add(NodeJoined(node=a_node("n2")), at=7300)
    assert "running" in timeline_of(log).words


def test_page_when_names_are_hostile_escapes_them() -> None:
    page = timeline_of(a_recorded_log())
    assert "script" not in page.elements
    assert "voda events my/<script>.db" in page.words
