"""What the launcher does next: a pure state machine from what happened to what to do.

Rule: a failure while the hosts changed is a resize. That is known only a moment later, when the script has been
asked again, so a failed program is given up at the end of a pause and not at its beginning.
"""

import enum
import math
from dataclasses import dataclass, replace

from voda.launcher.hosts import Layout, allot

EXIT_STOPPED = 143
"""128 + SIGTERM: what a shell shows of a process that was asked to end."""
HEALTHY_S = 600.0
"""A program that ran this long before it failed begins a new count of failures."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 60.0
VERDICT_S = 2.0
"""How long after its last failure a program is given up."""
VERDICT_LOOKS = 2
BLIND_S = 60.0
"""How long nothing runs while the script fails, until the launcher gives up."""


class Phase(enum.Enum):
    """What the launcher is about."""

    WAITING = "waiting"
    """For enough slots."""
    RUNNING = "running"
    STOPPING = "stopping"
    """The program was told to end."""
    PAUSING = "pausing"
    """The program failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What the user asked for."""

    min_np: int = 1
    max_np: int = 0
    """0: all the slots there are."""
    grace_s: float = 30.0
    max_failures: int = 3
    settle_s: float = 0.0
    """How long a longer list of hosts must stay as it is before the program is grown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """Where the launcher stands."""

    phase: Phase = Phase.WAITING
    since: float = 0.0
    """Begin of the phase."""
    due: float = math.inf
    """When something is due even if nothing happens."""
    found: Layout | None = None
    """What the script listed last; None before its first answer."""
    used: Layout | None = None
    """Where the program runs, or ran last."""
    failures: int = 0
    """In a row."""
    code: int = 0
    """Exit code of the last failure."""
    looks: int = 0
    """Answers of the script, good or bad, since the begin of the phase."""
    blind_since: float | None = None
    """When the script began to fail; None while it answers."""
    settling: Layout | None = None
    """The growth that must prove lasting, since `settling_since`."""
    settling_since: float = 0.0
    is_leaving: bool = False
    """Whether the launcher itself was told to end."""


@dataclass(frozen=True, slots=True)
class Looked:
    """The script listed hosts."""

    found: Layout


@dataclass(frozen=True, slots=True)
class Blind:
    """The script failed."""

    reason: str


@dataclass(frozen=True, slots=True)
class Ended:
    """The program ended; code as a shell shows it."""

    code: int


@dataclass(frozen=True, slots=True)
class Told:
    """The launcher itself was told to end."""


@dataclass(frozen=True, slots=True)
class Tick:
    """Nothing happened until `State.due`."""


Happening = Looked | Blind | Ended | Told | Tick


@dataclass(frozen=True, slots=True)
class Start:
    """Start the program."""

    layout: Layout


@dataclass(frozen=True, slots=True)
class Signal:
    """Tell the program to write its checkpoint and end."""


@dataclass(frozen=True, slots=True)
class Kill:
    """End the program now."""


@dataclass(frozen=True, slots=True)
class Say:
    """Tell the user."""

    text: str


@dataclass(frozen=True, slots=True)
class Leave:
    """End the launcher."""

    code: int
    text: str = ""
    shows_output: bool = False
    """Whether the program's last lines tell why."""


Act = Start | Signal | Kill | Say | Leave
Step = tuple[State, tuple[Act, ...]]


def step(state: State, happening: Happening, rules: Rules, now: float) -> Step:
    """Return the next state and what to do now; `now` in seconds of a clock that only runs forwards."""
    match happening:
        case Looked(found):
            seen = replace(state, found=found, looks=state.looks + 1, blind_since=None)
            return _looked(seen, rules, now)
        case Blind(reason):
            return _blind(state, reason, now)
        case Ended(code):
            return _ended(state, code, rules, now)
        case Told():
            return _told(state, rules, now)
        case Tick():
            return _overdue(state, rules, now)


def wanted(state: State, rules: Rules) -> Layout | None:
    """Return where the program shall run; None while there are too few slots."""
    if state.found is None or state.found.size < rules.min_np:
        return None
    return allot(state.found, rules.max_np or state.found.size, state.used)


def _looked(state: State, rules: Rules, now: float) -> Step:
    goal = wanted(state, rules)
    match state.phase:
        case Phase.WAITING:
            # What is short is told once, when the waiting begins.
            return _begin(state, rules, now, news="" if state.looks > 1 else "waits")
        case Phase.RUNNING if goal == state.used:
            return replace(state, settling=None), ()
        case Phase.RUNNING:
            return _changed(state, goal, rules, now)
        case Phase.PAUSING if goal != state.used:
            # The hosts went away under the program: it was right to fail.
            return _begin(replace(state, failures=state.failures - 1), rules, now, news="the hosts changed")
        case Phase.PAUSING:
            return _overdue(state, rules, now)
        case Phase.STOPPING:
            return state, ()


def _blind(state: State, reason: str, now: float) -> Step:
    is_new = state.blind_since is None
    seen = replace(state, looks=state.looks + 1, blind_since=now if state.blind_since is None else state.blind_since)
    if state.phase is Phase.WAITING and seen.blind_since is not None and now - seen.blind_since >= BLIND_S:
        return seen, (Leave(1, f"gives up: for {BLIND_S:.0f} s there has been no list of hosts: {reason}"),)
    return seen, (Say(f"cannot see the hosts: {reason}"),) if is_new else ()


def _changed(state: State, goal: Layout | None, rules: Rules, now: float) -> Step:
    """Stop the program for another layout, unless it is a growth that has yet to prove lasting."""
    if goal is not None and rules.settle_s and _is_growth(state.used, goal):
        if state.settling != goal:
            return replace(state, settling=goal, settling_since=now), ()
        if now - state.settling_since < rules.settle_s:
            return state, ()
    size = state.used.size if state.used else 0
    listed = state.found.size if state.found else 0
    why = f"{size} -> {goal}" if goal else f"{listed} slots are left, fewer than --min-np {rules.min_np}"
    return _stop(state, rules, now, news=f"resizes: {why}")


def _is_growth(used: Layout | None, goal: Layout) -> bool:
    return used is not None and all(goal.slots.get(host, 0) >= slots for host, slots in used.slots.items())


def _stop(state: State, rules: Rules, now: float, *, news: str) -> Step:
    stopping = replace(state, phase=Phase.STOPPING, since=now, due=now + rules.grace_s, looks=0, settling=None)
    return stopping, (Say(f"{news}; the program has {rules.grace_s:g} s for its checkpoint"), Signal())


def _begin(state: State, rules: Rules, now: float, *, news: str) -> Step:
    """Start the program, or wait until it can be."""
    goal = wanted(state, rules)
    if goal is not None:
        running = replace(state, phase=Phase.RUNNING, since=now, due=math.inf, used=goal, looks=0)
        return running, (Say(f"starts {goal}"), Start(goal))
    waiting = replace(state, phase=Phase.WAITING, since=now, due=math.inf, looks=max(1, state.looks))
    listed = 0 if state.found is None else state.found.size
    short = Say(f"{news}: {listed} slots are listed, at least {rules.min_np} are needed (--min-np)")
    return waiting, (short,) if news else ()


def _ended(state: State, code: int, rules: Rules, now: float) -> Step:
    if state.is_leaving:
        return state, (Leave(EXIT_STOPPED, "has stopped the program"),)
    if state.phase is Phase.STOPPING:
        return _begin(state, rules, now, news="waits")
    if code == 0:
        return state, (Leave(0),)
    failures = 1 if now - state.since >= HEALTHY_S else state.failures + 1
    is_last = failures >= rules.max_failures
    pause_s = VERDICT_S if is_last else min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2 ** (failures - 1))
    pausing = replace(
        state, phase=Phase.PAUSING, since=now, due=now + pause_s, failures=failures, code=code, looks=0, settling=None
    )
    what = f"the program failed with exit code {code} (failure {failures} of {rules.max_failures})"
    return pausing, (Say(what if is_last else f"{what}; starts it again in {pause_s:g} s"),)


def _told(state: State, rules: Rules, now: float) -> Step:
    leaving = replace(state, is_leaving=True)
    match state.phase:
        case Phase.RUNNING:
            return _stop(leaving, rules, now, news="was told to end")
        case Phase.STOPPING if state.is_leaving:
            return replace(leaving, due=math.inf), (Say("was told to end again, and waits no longer"), Kill())
        case Phase.STOPPING:
            return leaving, ()
        case Phase.WAITING | Phase.PAUSING:
            return leaving, (Leave(EXIT_STOPPED, "was told to end"),)


def _overdue(state: State, rules: Rules, now: float) -> Step:
    if now < state.due:
        return state, ()
    if state.phase is Phase.STOPPING:
        late = f"the program did not end within {rules.grace_s:g} s and is killed"
        return replace(state, due=math.inf), (Say(late), Kill())
    if state.phase is not Phase.PAUSING:
        return replace(state, due=math.inf), ()
    if state.failures < rules.max_failures:
        return _begin(state, rules, now, news="waits")
    if state.looks < VERDICT_LOOKS:
        return replace(state, due=now + VERDICT_S), ()
    often = "the program failed" if state.failures == 1 else f"the program failed {state.failures} times in a row"
    return state, (Leave(state.code, f"gives up: {often}, at last with exit code {state.code}", shows_output=True),)
