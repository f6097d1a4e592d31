"""Why a job with a part of a card has it, or waits for it."""

from tests.unit.planner.test_share_jobs import a_machine, a_share_job, running
from voda.api.presenters.explanations import explanation_of
from voda.cli.render.explanation import explanation_text
from voda.cli.render.terminal import console
from voda.placement import PLACERS
from voda.policies import POLICIES
from voda.timetravel.explanation import JobExplanation, explain_live


def explained(job_id: str, *jobs: object, held: dict[str, tuple[int, int]]) -> JobExplanation:
    state = a_machine(*jobs, held=held)  # type: ignore[arg-type]
    return explain_live(state, job_id, 100.0, policies=POLICIES, placer=PLACERS["steady"])


def text_of(explanation: JobExplanation) -> str:
    screen = console()
    with screen.capture() as captured:
        screen.print(explanation_text(explanation_of(explanation)), soft_wrap=True)
    return captured.get()


def test_holder_of_a_share_is_told_its_card_and_who_is_beside_it() -> None:
    found = explained("nb", a_share_job("nb", 250, workers={0: "n1"}), held={"nb": (1, 250), "pod": (1, 500)})
    assert found.card == "250 milli of card 1 of n1, beside default/pod (500 milli of card 1)"
    assert "card: 250 milli of card 1 of n1, beside default/pod (500 milli of card 1)" in text_of(found)
    assert "has 1 replica with 250 milli of a card: n1" in text_of(found)


def test_waiting_share_is_told_what_is_left_and_no_policy_that_would_help() -> None:
    found = explained("nb", running("train", workers=1), a_share_job("nb", 600), held={"pod": (1, 500)})
    assert found.next_reason == (
        "waits: needs 600 milli of one card; a shared one has at most 500 milli and 16,000 MiB left, and other jobs"
        " need all whole ones"
    )
    assert (found.card, found.shortage, found.suggestions, found.queue_position) == ("", None, (), 1)
