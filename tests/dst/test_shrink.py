"""The story that is told is as short as it can be, and of the rule that was broken at first."""

from tests.dst.faults import Fault
from tests.dst.shrink import shrunk
from tests.dst.story import story
from tests.dst.trial import Trial, Verdict
from tests.dst.users import Act
from tests.dst.world import Setup


def a_trial() -> Trial:
    crashes = [Fault(at_s=float(number), kind="crash", target=f"r{number}", span_s=8.0) for number in range(20)]
    acts = [Act(at_s=float(number), kind="submit", number=number, job=f"job-{number}") for number in range(20)]
    return Trial(setup=Setup(seed=7, faults=tuple(crashes)), acts=tuple(acts))


def a_verdict(breach: str) -> Verdict:
    trace = ["  1.000000 r0.1 x"]
    counted = {"events": 1, "requests": 1, "acknowledged": 1, "jobs": 1}
    return Verdict(breach=breach, at_s=50.0, digest="", faults={}, trace=trace, log=[], **counted)


def needs(trial: Trial) -> Verdict:
    """Break a rule where crash 3 and act 11 come together, and another where act 4 is alone."""
    faults = {fault.target for fault in trial.setup.faults}
    acts = {act.number for act in trial.acts}
    if "r3" in faults and 11 in acts:
        return a_verdict("once: it is there twice")
    return a_verdict("order: something else" if 4 in acts else "")


def test_shrunk_when_two_parts_are_needed_then_only_they_are_left() -> None:
    trial, verdict = shrunk(a_trial(), needs(a_trial()), needs)
    assert ([fault.target for fault in trial.setup.faults], [act.number for act in trial.acts]) == (["r3"], [11])
    assert verdict.rule == "once"


def test_shrunk_when_nothing_is_needed_then_nothing_is_left() -> None:
    trial, _ = shrunk(a_trial(), a_verdict("once"), lambda _: a_verdict("once"))
    assert (trial.setup.faults, trial.acts) == ((), ())


def test_shrunk_when_runs_are_used_up_then_the_best_so_far_is_returned() -> None:
    trial, verdict = shrunk(a_trial(), needs(a_trial()), needs, most_runs=3)
    assert needs(trial).rule == verdict.rule == "once"


def test_story_when_told_then_it_names_parts_breach_and_command() -> None:
    trial, verdict = shrunk(a_trial(), needs(a_trial()), needs)
    told = story(trial, verdict, command="again: run --seed 7")
    for part in ("crash r3 for 2 s", "submit job-11", "1.000000 r0.1 x", "BROKEN  once: it is there twice", "--seed 7"):
        assert part in told
