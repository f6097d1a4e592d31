"""The snapshots behind the controller: which ones are taken for its own."""

from tests.builders import Log, a_node, a_spec
from voda.domain.job import Job
from voda.domain.state import Settings
from voda.events.types import AnyFact, JobCompleted, JobSubmitted, NodeJoined, WorkerExited, WorkerStarted
from voda.projections.live import Live, LivePool

_KEPT = {"live-3": (("plan", "jobs", "nodes", "settings", "undecided", "outlived"), 21, 7)}
"""Format -> what snapshots of it keep of a pool, and how many fields of a job and of the settings: whoever changes that
has to count the format up, or older snapshots are misread.
"""


def test_format_goes_with_what_is_kept() -> None:
    kept = (LivePool.__struct_fields__, len(Job.__struct_fields__), len(Settings.__struct_fields__))
    assert {Live.FORMAT: kept} == _KEPT


def test_state_from_a_snapshot_is_that_of_the_whole_log_workers_of_ended_jobs_included() -> None:
    log, whole, resumed = Log(), Live(), Live()
    facts: list[AnyFact] = [
        NodeJoined(node=a_node("n1")),
        JobSubmitted(spec=a_spec("a", max_replicas=2)),
        WorkerStarted(job_id="a", workers={0: "n1", 1: "n1"}),
        JobCompleted(job_id="a"),
    ]
    for fact in facts:
        whole.apply(log.add(fact, at=0))
    resumed.load(whole.dump())
    assert resumed.state("default").outlived.keys() == {"a"}
    last = log.add(WorkerExited(job_id="a", workers=(0, 1), cause="finished"), at=1)
    for live in (whole, resumed):
        live.apply(last)
    assert resumed.state("default") == whole.state("default")
    assert (resumed.dump(), dict(resumed.state("default").outlived)) == (whole.dump(), {})
