"""What the launcher does next, without a process or a second of waiting."""

import pytest

from voda.domain.sizes import JobSizes
from voda.launcher.hosts import Layout
from voda.launcher.state_machine import (
    EXIT_STOPPED,
    HEALTHY_S,
    NO_HOSTS_S,
    DiscoveryFailed,
    EndSignalled,
    HostsListed,
    Kill,
    LauncherAction,
    LauncherEvent,
    LauncherPhase,
    LauncherState,
    Leave,
    ProgramExited,
    Rules,
    Say,
    Signal,
    Start,
    Tick,
    step,
)

RULES = Rules(min_np=1, max_np=4, grace_s=30, max_failures=3)


def hosts(**slots: int) -> HostsListed:
    return HostsListed(Layout(slots=slots))


class Story:
    """Events, one after the other, and what was answered."""

    def __init__(self, rules: Rules = RULES) -> None:
        self.state = LauncherState()
        self.now = 0.0
        self.rules = rules
        self.said: list[str] = []

    def after(self, span_s: float, event: LauncherEvent) -> list[LauncherAction]:
        """Return the actions that are not words."""
        self.now += span_s
        self.state, actions = step(self.state, event, self.rules, self.now)
        self.said += [action.text for action in actions if isinstance(action, Say)]
        return [action for action in actions if not isinstance(action, Say)]


def a_running_story(rules: Rules = RULES, **slots: int) -> Story:
    story = Story(rules)
    assert story.after(0, hosts(**slots or {"a": 1})) == [Start(Layout(slots=slots or {"a": 1}))]
    return story


def test_program_when_slots_are_short_waits_and_says_so_once() -> None:
    story = Story(Rules(min_np=2, max_np=4))
    assert story.after(0, hosts(a=1)) == story.after(1, hosts(a=1)) == []
    assert story.said == ["waits for slots: 1 listed, 2 needed (--min-np)"]
    assert story.after(1, hosts(a=1, b=1)) == [Start(Layout(slots={"a": 1, "b": 1}))]


def test_program_when_hosts_change_is_told_and_restarted_at_the_new_size() -> None:
    story = a_running_story(a=1)
    assert story.after(1, hosts(a=2)) == [Signal()]
    assert story.after(1, hosts(a=3)) == []
    assert story.after(1, ProgramExited(0)) == [Start(Layout(slots={"a": 3}))]
    assert story.state.failures == 0


def test_program_when_no_most_is_told_grows_onto_all_the_slots_there_are() -> None:
    story = a_running_story(Rules(min_np=2), a=2)
    assert story.after(1, hosts(a=2, b=6)) == [Signal()]
    assert story.after(1, ProgramExited(0)) == [Start(Layout(slots={"a": 2, "b": 6}))]


def test_program_when_it_runs_at_some_sizes_only_has_one_of_them() -> None:
    rules = Rules(min_np=2, sizes=JobSizes.of([2, 4, 8]))
    story = a_running_story(rules, a=2)
    assert story.after(1, hosts(a=2, b=1)) == []
    assert story.after(1, hosts(a=2, b=5)) == [Signal()]
    assert story.after(1, ProgramExited(0)) == [Start(Layout(slots={"a": 2, "b": 2}))]
    assert story.after(1, hosts(a=1)) == [Signal()]
    assert story.after(1, ProgramExited(0)) == []


def test_program_when_hosts_stay_is_left_alone() -> None:
    story = a_running_story(a=1, b=1)
    assert story.after(1, hosts(b=1, a=1)) == []
    assert story.state.phase is LauncherPhase.RUNNING


def test_program_when_it_overstays_its_grace_is_killed_and_restarted() -> None:
    story = a_running_story(a=1)
    story.after(1, hosts(a=2))
    assert story.state.due == 31
    assert story.after(29, Tick()) == []
    assert story.after(1, Tick()) == [Kill()]
    assert story.after(1, ProgramExited(137)) == [Start(Layout(slots={"a": 2}))]


def test_program_when_hosts_fall_below_the_minimum_stops_and_waits() -> None:
    story = a_running_story(Rules(min_np=2, max_np=4), a=2)
    assert story.after(1, hosts(a=1)) == [Signal()]
    assert story.after(1, ProgramExited(0)) == []
    assert story.state.phase is LauncherPhase.WAITING
    assert story.after(1, hosts(a=3)) == [Start(Layout(slots={"a": 3}))]


def test_program_when_done_ends_the_launcher_with_0() -> None:
    assert a_running_story().after(9, ProgramExited(0)) == [Leave(0)]


def test_program_when_it_keeps_failing_is_given_up_with_its_exit_code() -> None:
    story = a_running_story()
    for pause_s in (1, 2):
        assert story.after(5, ProgramExited(7)) == []
        assert story.after(0.1, hosts(a=1)) == []
        assert story.after(pause_s, Tick()) == [Start(Layout(slots={"a": 1}))]
    assert story.after(5, ProgramExited(8)) == []
    assert story.after(1, hosts(a=1)) == story.after(0.5, hosts(a=1)) == []
    (leave,) = story.after(1, Tick())
    assert isinstance(leave, Leave)
    assert (leave.code, leave.shows_output) == (8, True)
    assert leave.text == "gives up: the program failed 3 times in a row, at last with exit code 8"


@pytest.mark.parametrize(("code", "meaning"), [(126, "found, but not executable"), (127, "command not found")])
def test_program_that_cannot_be_run_is_not_tried_again_on_the_same_hosts(code: int, meaning: str) -> None:
    story = a_running_story()
    assert story.after(1, ProgramExited(code)) == []
    assert story.said[-1] == f"the program failed with exit code {code} ({meaning})"
    assert story.after(1, hosts(a=1)) == story.after(0.5, hosts(a=1)) == []
    (leave,) = story.after(1, Tick())
    text = f"gives up: the program cannot be run ({meaning}), at last with exit code {code}"
    assert leave == Leave(code, text, shows_output=True)


def test_program_that_cannot_be_run_on_hosts_that_went_away_is_tried_on_those_that_are_left() -> None:
    story = a_running_story(a=1, b=1)
    assert story.after(1, ProgramExited(127)) == []
    assert story.after(1, hosts(a=1)) == [Start(Layout(slots={"a": 1}))]
    assert story.after(9, ProgramExited(0)) == [Leave(0)]


def test_failure_when_the_hosts_change_right_after_it_is_a_resize() -> None:
    story = a_running_story(Rules(max_np=4, max_failures=1), a=1, b=1)
    assert story.after(5, ProgramExited(1)) == []
    assert story.after(1, hosts(a=1)) == [Start(Layout(slots={"a": 1}))]
    assert story.state.failures == 0


def test_last_failure_when_nobody_asked_for_the_hosts_since_is_no_verdict_yet() -> None:
    story = a_running_story(Rules(max_failures=1))
    story.after(5, ProgramExited(1))
    assert story.after(60, Tick()) == []
    story.after(1, hosts(a=1))
    assert [type(action) for action in story.after(1, DiscoveryFailed("x"))] == []
    assert [type(action) for action in story.after(9, Tick())] == [Leave]


def test_failure_when_the_program_ran_long_before_counts_anew() -> None:
    story = a_running_story()
    story.after(5, ProgramExited(1))
    story.after(1, Tick())
    story.after(HEALTHY_S, ProgramExited(1))
    assert story.state.failures == 1


def test_launcher_when_told_to_end_gives_the_program_its_grace() -> None:
    story = a_running_story()
    assert story.after(1, EndSignalled()) == [Signal()]
    (leave,) = story.after(3, ProgramExited(0))
    assert isinstance(leave, Leave)
    assert leave.code == EXIT_STOPPED


def test_launcher_when_told_twice_kills_at_once() -> None:
    story = a_running_story()
    story.after(1, EndSignalled())
    assert story.after(1, EndSignalled()) == [Kill()]


def test_launcher_when_told_during_a_resize_does_not_start_again() -> None:
    story = a_running_story()
    story.after(1, hosts(a=2))
    assert story.after(1, EndSignalled()) == []
    assert [type(action) for action in story.after(1, ProgramExited(0))] == [Leave]


def test_launcher_when_told_while_nothing_runs_ends_at_once() -> None:
    assert [type(action) for action in Story().after(1, EndSignalled())] == [Leave]


def test_script_when_it_fails_under_a_running_program_changes_nothing() -> None:
    story = a_running_story()
    assert (
        story.after(1, DiscoveryFailed("no such host"))
        == story.after(10 * NO_HOSTS_S, DiscoveryFailed("no such host"))
        == []
    )
    assert story.said[1:] == ["cannot list the hosts: no such host"]


def test_script_when_it_never_answers_ends_the_launcher_with_its_words() -> None:
    story = Story()
    assert story.after(0, DiscoveryFailed("printed garbage")) == []
    (leave,) = story.after(NO_HOSTS_S, DiscoveryFailed("printed garbage"))
    assert isinstance(leave, Leave)
    assert leave.code == 1
    assert "printed garbage" in leave.text


def test_growth_when_it_has_to_settle_waits_until_the_list_is_calm() -> None:
    story = a_running_story(Rules(max_np=8, settle_s=5), a=1)
    assert story.after(1, hosts(a=1, b=1)) == []
    assert story.after(3, hosts(a=1, b=1, c=1)) == []
    assert story.after(3, hosts(a=1, b=1, c=1)) == []
    assert story.after(2, hosts(a=1, b=1, c=1)) == [Signal()]


def test_shrink_when_growth_has_to_settle_is_immediate() -> None:
    story = a_running_story(Rules(max_np=8, settle_s=5), a=1, b=1)
    assert story.after(1, hosts(a=1)) == [Signal()]
