"""What the launcher does next: a pure function from its state and an event to its next state and actions.

Rule: a failure while the hosts changed is a resize. That is known only a moment later, when the script has been
asked again, so a failed program is given up at the end of a pause and not at its beginning.
"""

import enum
import math
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from voda.backoff import delay_s
from voda.domain.sizes import JobSizes
from voda.launcher.hosts import Layout, allocate_slots
from voda.programs.launchers import CANNOT_RUN

EXIT_STOPPED: Final = 143
"""128 + SIGTERM: what a shell shows of a process that was asked to end."""
HEALTHY_S: Final = 600.0
"""A program that ran this long before it failed begins a new count of failures."""
_FIRST_PAUSE_S: Final = 1.0
_LONGEST_PAUSE_S: Final = 60.0
_GIVE_UP_AFTER_S: Final = 2.0
"""How long after its last failure a program is given up."""
_GIVE_UP_AFTER_ANSWERS: Final = 2
NO_HOSTS_S: Final = 60.0
"""How long nothing runs while the script fails, until the launcher gives up."""


class LauncherPhase(enum.Enum):
    WAITING = "waiting"
    """For enough slots."""
    RUNNING = "running"
    STOPPING = "stopping"
    """The program has been signalled to end."""
    PAUSING = "pausing"
    """The program failed."""


class Rules(Struct, frozen=True, kw_only=True):
    """What the user asked for."""

    min_np: int = 1
    max_np: int = 0
    """0: all the slots there are."""
    sizes: JobSizes | None = None
    """Numbers of processes at which the program runs; None: all."""
    grace_s: float = 30.0
    max_failures: int = 3
    settle_s: float = 0.0
    """How long a longer list of hosts must stay as it is before the program is grown."""


class LauncherState(Struct, frozen=True, kw_only=True):
    phase: LauncherPhase = LauncherPhase.WAITING
    since: float = 0.0
    """Begin of the phase."""
    due: float = math.inf
    """When something is due even if nothing happens."""
    listed: Layout | None = None
    """What the script listed last; None before its first answer."""
    used: Layout | None = None
    """Where the program runs, or ran last."""
    failures: int = 0
    """In a row."""
    code: int = 0
    """Exit code of the last failure."""
    answers: int = 0
    """Of the script, good or bad, since the begin of the phase."""
    failing_since: float | None = None
    """When the script began to fail; None while it answers."""
    growth: Layout | None = None
    """A larger layout that must stay listed before it is used."""
    growth_since: float = 0.0
    is_ending: bool = False
    """Whether the launcher itself was signalled to end."""


class HostsListed(Struct, frozen=True):
    layout: Layout


class DiscoveryFailed(Struct, frozen=True):
    reason: str


class ProgramExited(Struct, frozen=True):
    """The program ended; code as a shell shows it."""

    code: int


class EndSignalled(Struct, frozen=True):
    """The launcher itself was signalled to end."""


class Tick(Struct, frozen=True):
    """Nothing happened until `LauncherState.due`."""


LauncherEvent = HostsListed | DiscoveryFailed | ProgramExited | EndSignalled | Tick


class Start(Struct, frozen=True):
    """Start the program."""

    layout: Layout


class Signal(Struct, frozen=True):
    """Signal the program to write its checkpoint and end."""


class Kill(Struct, frozen=True):
    """End the program now."""


class Say(Struct, frozen=True):
    """Tell the user."""

    text: str


class Leave(Struct, frozen=True):
    """End the launcher."""

    code: int
    text: str = ""
    shows_output: bool = False
    """Whether the program's last lines tell why."""


LauncherAction = Start | Signal | Kill | Say | Leave
Step = tuple[LauncherState, tuple[LauncherAction, ...]]


def step(state: LauncherState, event: LauncherEvent, rules: Rules, now: float) -> Step:
    """Return the next state and what to do now; `now` in seconds of a clock that only runs forwards."""
    match event:
        case HostsListed(layout):
            answered = replace(state, listed=layout, answers=state.answers + 1, failing_since=None)
            return _on_hosts(answered, rules, now)
        case DiscoveryFailed(reason):
            return _on_discovery_failure(state, reason, now)
        case ProgramExited(code):
            return _on_exit(state, code, rules, now)
        case EndSignalled():
            return _on_end_signal(state, rules, now)
        case Tick():
            return _on_due(state, rules, now)


def goal_layout(state: LauncherState, rules: Rules) -> Layout | None:
    """Return where the program shall run; None while there are too few slots."""
    listed = 0 if state.listed is None else state.listed.size
    most = min(rules.max_np or listed, listed)
    size = most if rules.sizes is None else rules.sizes.floor(most)
    if state.listed is None or size < rules.min_np:
        return None
    return allocate_slots(state.listed, size, state.used)


def _on_hosts(state: LauncherState, rules: Rules, now: float) -> Step:
    goal = goal_layout(state, rules)
    match state.phase:
        case LauncherPhase.WAITING:
            # Say what is missing once, when the waiting begins.
            return _begin(state, rules, now, news="" if state.answers > 1 else "waits for slots")
        case LauncherPhase.RUNNING if goal == state.used:
            return replace(state, growth=None), ()
        case LauncherPhase.RUNNING:
            return _changed(state, goal, rules, now)
        case LauncherPhase.PAUSING if goal != state.used:
            # The hosts went away under the program: it was right to fail.
            return _begin(
                replace(state, failures=state.failures - 1), rules, now, news="the hosts changed, waits for slots"
            )
        case LauncherPhase.PAUSING:
            return _on_due(state, rules, now)
        case LauncherPhase.STOPPING:
            return state, ()


def _on_discovery_failure(state: LauncherState, reason: str, now: float) -> Step:
    since = now if state.failing_since is None else state.failing_since
    failing = replace(state, answers=state.answers + 1, failing_since=since)
    if state.phase is LauncherPhase.WAITING and now - since >= NO_HOSTS_S:
        return failing, (Leave(1, f"gives up: for {NO_HOSTS_S:.0f} s there has been no list of hosts: {reason}"),)
    return failing, (Say(f"cannot list the hosts: {reason}"),) if state.failing_since is None else ()


def _changed(state: LauncherState, goal: Layout | None, rules: Rules, now: float) -> Step:
    """Stop the program for another layout, unless it is a growth that has to stay listed first."""
    if goal is not None and rules.settle_s and _is_growth(state.used, goal):
        if state.growth != goal:
            return replace(state, growth=goal, growth_since=now), ()
        if now - state.growth_since < rules.settle_s:
            return state, ()
    size = state.used.size if state.used else 0
    listed = state.listed.size if state.listed else 0
    why = f"{size} -> {goal}" if goal else f"{listed} slots are left, fewer than {rules.min_np} ({_bound(rules)})"
    if goal is not None and state.used is not None and goal.slots == state.used.slots and goal.addresses:
        return _stop(state, rules, now, news=f"starts again: hosts have other addresses: {goal}")
    return _stop(state, rules, now, news=f"resizes: {why}")


def _bound(rules: Rules) -> str:
    """Return the option that says how many processes there are at least."""
    return "--min-np" if rules.sizes is None else "--sizes"


def _is_growth(used: Layout | None, goal: Layout) -> bool:
    if used is None or any(goal.addresses.get(host) != address for host, address in used.addresses.items()):
        return False
    return all(goal.slots.get(host, 0) >= slots for host, slots in used.slots.items())


def _stop(state: LauncherState, rules: Rules, now: float, *, news: str) -> Step:
    stopping = replace(state, phase=LauncherPhase.STOPPING, since=now, due=now + rules.grace_s, answers=0, growth=None)
    return stopping, (Say(f"{news}; the program has {rules.grace_s:g} s for its checkpoint"), Signal())


def _begin(state: LauncherState, rules: Rules, now: float, *, news: str) -> Step:
    """Start the program, or wait until it can be."""
    goal = goal_layout(state, rules)
    if goal is not None:
        running = replace(state, phase=LauncherPhase.RUNNING, since=now, due=math.inf, used=goal, answers=0)
        return running, (Say(f"starts {goal}"), Start(goal))
    waiting = replace(state, phase=LauncherPhase.WAITING, since=now, due=math.inf, answers=max(1, state.answers))
    listed = 0 if state.listed is None else state.listed.size
    short = Say(f"{news}: {listed} listed, {rules.min_np} needed ({_bound(rules)})")
    return waiting, (short,) if news else ()


def _on_exit(state: LauncherState, code: int, rules: Rules, now: float) -> Step:
    if state.is_ending:
        return state, (Leave(EXIT_STOPPED, "stopped the program"),)
    if state.phase is LauncherPhase.STOPPING:
        return _begin(state, rules, now, news="waits for slots")
    if code == 0:
        return state, (Leave(0),)
    failures = 1 if now - state.since >= HEALTHY_S else state.failures + 1
    is_last = failures >= rules.max_failures or code in CANNOT_RUN
    backoff_s = delay_s(failures, first_s=_FIRST_PAUSE_S, longest_s=_LONGEST_PAUSE_S)
    pause_s = _GIVE_UP_AFTER_S if is_last else backoff_s
    pausing = replace(
        state,
        phase=LauncherPhase.PAUSING,
        since=now,
        due=now + pause_s,
        failures=failures,
        code=code,
        answers=0,
        growth=None,
    )
    count = CANNOT_RUN.get(code, f"failure {failures} of {rules.max_failures}")
    what = f"the program failed with exit code {code} ({count})"
    return pausing, (Say(what if is_last else f"{what}; starts it again in {pause_s:g} s"),)


def _on_end_signal(state: LauncherState, rules: Rules, now: float) -> Step:
    ending = replace(state, is_ending=True)
    match state.phase:
        case LauncherPhase.RUNNING:
            return _stop(ending, rules, now, news="got a signal to end")
        case LauncherPhase.STOPPING if state.is_ending:
            return replace(ending, due=math.inf), (Say("got a second signal and waits no longer"), Kill())
        case LauncherPhase.STOPPING:
            return ending, ()
        case LauncherPhase.WAITING | LauncherPhase.PAUSING:
            return ending, (Leave(EXIT_STOPPED, "got a signal to end"),)


def _on_due(state: LauncherState, rules: Rules, now: float) -> Step:
    if now < state.due:
        return state, ()
    if state.phase is LauncherPhase.STOPPING:
        late = f"the program did not end within {rules.grace_s:g} s and is killed"
        return replace(state, due=math.inf), (Say(late), Kill())
    if state.phase is not LauncherPhase.PAUSING:
        return replace(state, due=math.inf), ()
    if state.failures < rules.max_failures and state.code not in CANNOT_RUN:
        return _begin(state, rules, now, news="waits for slots")
    if state.answers < _GIVE_UP_AFTER_ANSWERS:
        return replace(state, due=now + _GIVE_UP_AFTER_S), ()
    often = "the program failed" if state.failures == 1 else f"the program failed {state.failures} times in a row"
    if state.code in CANNOT_RUN:
        often = f"the program cannot be run ({CANNOT_RUN[state.code]})"
    return state, (Leave(state.code, f"gives up: {often}, at last with exit code {state.code}", shows_output=True),)
