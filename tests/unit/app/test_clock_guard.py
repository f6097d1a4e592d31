"""A clock that is far ahead of log and uptime is not believed until somebody confirms it."""

from dataclasses import dataclass
from pathlib import Path

import pytest
from click.testing import CliRunner
from msgspec.structs import replace

from voda.app.clock_guard import MOST_AHEAD_S, ClockGuard, ClockReading, accept, ahead_s, confirmed
from voda.cli import build_app
from voda.clock import SystemClock

DAY_S = 86_400.0
NOON = ClockReading(wall_s=2_000_000_000.0, boot_id="b1", up_s=50_000.0)


@dataclass
class Machine:
    """A machine whose clock can be set, and which may start anew."""

    folder: Path
    now: ClockReading = NOON

    def run(self, seconds: float, *, jump: float = 0.0) -> None:
        self.now = replace(self.now, wall_s=self.now.wall_s + seconds + jump, up_s=self.now.up_s + seconds)

    def start(self, last_event_at: float = 0.0) -> tuple[ClockGuard, SystemClock]:
        """Return guard and clock of a voda that starts now."""
        guard = ClockGuard(self.folder, last_event_at, self.now, count_s=lambda: self.now.up_s)
        wall, steady = (lambda: self.now.wall_s), (lambda: self.now.up_s)
        return guard, SystemClock(last_event_at, wall=wall, steady=steady, believed=guard.believed)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """A machine on which a voda has noted the time."""
    made = Machine(tmp_path)
    accept(tmp_path, made.now)
    return made


def test_time_that_passed_is_counted_by_uptime_and_after_another_boot_by_all_of_it() -> None:
    later = replace(NOON, wall_s=NOON.wall_s + 100.0, up_s=NOON.up_s + 60.0)
    assert ahead_s(NOON, later) == 40.0
    assert ahead_s(NOON, replace(later, boot_id="b2", up_s=10.0)) == 90.0
    # As a container that starts anew counts.
    assert ahead_s(NOON, replace(later, up_s=10.0)) == 90.0


def test_clock_that_jumped_while_the_machine_ran_is_not_followed_until_it_is_right_or_accepted(
    machine: Machine,
) -> None:
    machine.run(10.0, jump=40 * DAY_S)
    guard, clock = machine.start(last_event_at=NOON.wall_s)
    assert clock.now() == NOON.wall_s + 10.0
    assert clock.time_of_day() == NOON.wall_s + 10.0 + 40 * DAY_S
    assert "40d ahead of what log and uptime account for" in guard.problem
    machine.run(10.0)
    assert clock.now() == NOON.wall_s + 20.0
    machine.run(10.0, jump=-40 * DAY_S)
    assert (clock.now(), guard.problem) == (NOON.wall_s + 30.0, "")
    machine.run(10.0, jump=40 * DAY_S)
    assert clock.now() == NOON.wall_s + 40.0
    machine.run(10.0)
    accept(machine.folder, machine.now)
    assert (clock.now(), guard.problem) == (NOON.wall_s + 50.0 + 40 * DAY_S, "")


def test_clock_that_is_far_behind_is_told_and_time_goes_on_from_the_log(machine: Machine) -> None:
    machine.run(10.0, jump=-365 * DAY_S)
    guard, clock = machine.start(last_event_at=NOON.wall_s)
    machine.run(10.0)
    assert clock.now() == NOON.wall_s + 10.0
    assert "365d behind what log and uptime account for: no folder is deleted" in guard.problem
    machine.run(10.0)
    accept(machine.folder, machine.now)
    assert (clock.now(), guard.problem) == (NOON.wall_s + 20.0, "")


def test_clock_is_followed_over_a_day_in_which_no_voda_ran(machine: Machine) -> None:
    machine.run(9 * DAY_S, jump=MOST_AHEAD_S - 1.0)
    guard, clock = machine.start(last_event_at=NOON.wall_s)
    assert (clock.now(), guard.problem) == (machine.now.wall_s, "")


@pytest.mark.parametrize(("off_s", "is_trusted"), [(0.9 * DAY_S, True), (9 * DAY_S, False)])
def test_clock_after_a_start_of_the_machine_is_followed_and_not_trusted_where_it_was_off_for_long(
    machine: Machine, off_s: float, is_trusted: bool
) -> None:
    machine.now = ClockReading(wall_s=NOON.wall_s + off_s, boot_id="b2", up_s=30.0)
    guard, clock = machine.start(last_event_at=NOON.wall_s)
    assert (clock.now(), not guard.problem) == (machine.now.wall_s, is_trusted)


async def test_clock_that_begins_in_1970_is_not_noted_and_right_at_once_when_it_is_set(machine: Machine) -> None:
    machine.now = ClockReading(wall_s=30.0, boot_id="b2", up_s=30.0)
    guard, clock = machine.start(last_event_at=NOON.wall_s)
    await guard.note(machine.now.wall_s)
    machine.run(60.0, jump=NOON.wall_s)
    assert (clock.now(), guard.problem) == (machine.now.wall_s, "")
    await guard.note(machine.now.wall_s)
    assert confirmed(machine.folder) == machine.now


async def test_clock_far_behind_is_noted_once_it_was_accepted(machine: Machine) -> None:
    machine.run(10.0, jump=-40 * DAY_S)
    guard, _ = machine.start()
    accept(machine.folder, machine.now)
    machine.run(10.0)
    await guard.note(machine.now.wall_s)
    assert confirmed(machine.folder) == machine.now
    machine.run(10.0, jump=9 * DAY_S)
    guard.believed(machine.now.wall_s)
    assert "9d ahead" in guard.problem


def test_log_says_how_late_it_is_where_no_voda_has_noted_the_time(tmp_path: Path) -> None:
    machine = Machine(tmp_path, replace(NOON, up_s=60.0))
    guard, clock = machine.start(last_event_at=NOON.wall_s - 2 * DAY_S)
    assert (clock.now(), bool(guard.problem)) == (NOON.wall_s, True)
    (tmp_path / "clock.json").write_text("{")
    guard, clock = machine.start()
    assert (clock.now(), guard.problem) == (NOON.wall_s, "")


def test_command_shows_the_clock_and_accepts_it(tmp_path: Path) -> None:
    def told(*arguments: str) -> str:
        found = CliRunner().invoke(build_app(), ["clock", "--home", str(tmp_path), *arguments])
        assert found.exit_code == 0, found.output
        return found.stdout

    assert "no voda has noted the time" in told()
    assert told("--accept").endswith(" is right\n")
    assert "0s ahead of the uptime since" in told()
    assert (tmp_path / "clock.json").stat().st_mode & 0o077 == 0
