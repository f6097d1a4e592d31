"""The page of a recorded log, made of hostile names and of jobs that have not ended."""

from html.parser import HTMLParser

from tests.builders import Log, a_node, a_spec
from voda.events.types import JobCompleted, JobSubmitted, NodeJoined, WorkerExited, WorkerStarted
from voda.projections.history import History
from voda.projections.timeline import Timeline
from voda.simulator.report.pages import recorded_run, timeline_page


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


def page_of(log: Log) -> Words:
    history, timeline = History(), Timeline()
    for event in log.events:
        history.apply(event)
        timeline.apply(event)
    return Words(
        timeline_page(recorded_run(history, timeline, policy="fifo", placer="steady", source="my/<script>.db"))
    )


def a_log() -> Log:
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
    page = page_of(a_log())
    assert {"done", "running"} <= set(page.words)
    assert page.elements.count("tr") == 2
    assert any("1 job still live" in words for words in page.words)


def test_page_when_nothing_ended_yet_is_drawn_up_to_the_end_of_the_log() -> None:
    log = Log()
    log.add(NodeJoined(node=a_node("n1")), at=0)
    log.add(JobSubmitted(spec=a_spec("running")), at=100)
    log.add(WorkerStarted(job_id="running", workers={0: "n1"}), at=200)
    log.add(NodeJoined(node=a_node("n2")), at=7300)
    assert "running" in page_of(log).words


def test_page_when_names_are_hostile_escapes_them() -> None:
    page = page_of(a_log())
    assert "script" not in page.elements
    assert "voda events my/<script>.db" in page.words
