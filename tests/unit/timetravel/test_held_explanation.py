"""A job that is held says for what, and is told neither a shortage nor a place in the queue."""

from tests.builders import a_job, a_node, a_state
from tests.reasons import said
from voda.domain.dependency import Dependency
from voda.planner.registries import Registries
from voda.policies import POLICIES
from voda.timetravel.explanation import explain_live


def test_job_that_waits_for_another_lacks_no_gpus_and_is_in_no_queue() -> None:
    jobs = [
        a_job("a", workers={0: "n1"}),
        a_job("z", waits_for=(Dependency(job_id="a"),), submitted_at=1.0),
        a_job("w", min_replicas=8, max_replicas=8, submitted_at=2.0),
    ]
    view = a_state(jobs=jobs, nodes=[a_node()], placement={"a": ("n1",)})
    held, waiting = (
        explain_live(view, job_id, 10.0, policies=dict(POLICIES), decide=Registries().decider(view, cause="test"))
        for job_id in "zw"
    )
    assert (said(held.next_reason), held.shortage, held.queue_position) == ("waits: after a (Running)", None, 0)
    assert held.suggestions == ()
    assert (waiting.queue_position, waiting.queue_length, waiting.shortage is not None) == (1, 1, True)
