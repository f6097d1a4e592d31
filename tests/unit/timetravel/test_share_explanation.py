"""Why a job with a part of a GPU has it, or waits for it."""

from tests.builders import a_job
from tests.reasons import said
from tests.unit.planner.sharing.test_stand_ins import a_machine, a_share_job, running
from voda.api.presenters.explanations import explanation_of
from voda.cli.render.explanation import explanation_text
from voda.cli.render.terminal import console
from voda.events.text.cells import part_text
from voda.planner.registries import Registries
from voda.policies import POLICIES
from voda.timetravel.explanation import JobExplanation, explain_live


def explained(job_id: str, *jobs: object, held: dict[str, tuple[int, int]]) -> JobExplanation:
    state = a_machine(*jobs, held=held)  # type: ignore[arg-type]
    return explain_live(state, job_id, 100.0, policies=POLICIES, decide=Registries().decider(state, cause="test"))


def text_of(explanation: JobExplanation) -> str:
    screen = console()
    with screen.capture() as captured:
        screen.print(explanation_text(explanation_of(explanation)), soft_wrap=True)
    return captured.get()


def test_holder_of_a_share_is_told_its_gpu_and_who_is_beside_it() -> None:
    found = explained("nb", a_share_job("nb", 250, workers={0: "n1"}), held={"nb": (1, 250), "pod": (1, 500)})
    assert found.gpu is not None
    assert part_text(found.gpu) == "250 milli of GPU 1 of n1, beside default/pod (500 milli of GPU 1)"
    assert "GPU: 250 milli of GPU 1 of n1, beside default/pod (500 milli of GPU 1)" in text_of(found)
    assert "has 1 replica with 250 milli of a GPU: n1" in text_of(found)


def test_waiting_share_is_told_what_is_left_and_no_policy_that_would_help() -> None:
    waiting = a_share_job("nb", 600, submitted_at=1.0)
    found = explained("nb", running("train", workers=1), waiting, held={"pod": (1, 500)})
    assert said(found.next_reason) == (
        "waits: needs 600 milli of one GPU, and none is whole; a shared one has at most 500 milli and 16,000 MiB left"
    )
    assert (found.gpu, found.shortage, found.suggestions, found.queue_position) == (None, None, (), 1)
    assert "it is number 1 of 1 waiting job by priority and submission" in text_of(found)
    assert "has 0 replicas with 600 milli of a GPU; minimum 1" in text_of(found)


def test_share_of_more_memory_than_any_gpu_has_is_told_that_it_can_never_start() -> None:
    found = explained("nb", a_share_job("nb", 100, memory_mib=20_000), held={"pod": (1, 500)})
    assert found.suggestions == (
        "cannot start on this cluster even when it is empty: no GPU of the pool has 20,000 MiB: the largest has"
        " 16,000 MiB",
    )


def test_waiting_job_of_whole_gpus_is_not_told_that_shared_ones_are_not_there() -> None:
    found = explained("big", a_job("big"), held={"a": (0, 500), "b": (1, 500)})
    assert found.suggestions == ()
    assert "needs 1 GPU; 2 GPUs of its pool are shared, and no other takes workers now" in text_of(found)
    found = explained("big", a_job("big", min_replicas=3, max_replicas=3), held={"a": (0, 500), "b": (1, 500)})
    assert found.suggestions == (
        "cannot start on this cluster even when it is empty: it needs 3 workers of 1 GPU, and only 2 fit",
    )


def test_shortage_beside_a_shared_gpu_counts_it_and_no_share_among_the_jobs_that_have_the_rest() -> None:
    share = a_share_job("nb", 500, workers={0: "n1"})
    found = explained(
        "big", running("train", workers=1), share, a_job("big", min_replicas=2, max_replicas=2), held={"nb": (0, 500)}
    )
    assert found.shortage is not None
    assert (found.shortage.capacity_gpus, found.shortage.shared_gpus, found.shortage.jobs_served) == (1, 1, 1)
    assert "of 1 in its pool (1 more is shared), none is left" in text_of(found)
