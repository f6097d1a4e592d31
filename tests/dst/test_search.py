"""The search is repeatable, and finds the product broken where it is."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.dst.mutations import MUTATIONS, without
from tests.dst.search import Plan, search, try_seed
from tests.dst.trial import trial_of, tried

_ROOT = Path(__file__).parents[2]
_LIMIT_S = 600.0
_SHORT = ("--hours", "0.5", "--quiet-hours", "3")
_MOST_SEEDS = 50


def command(*arguments: str, hash_seed: str = "0") -> subprocess.CompletedProcess[str]:
    """Run the command as `make dst` does."""
    return subprocess.run(
        [sys.executable, "-m", "tests.dst", *arguments],
        cwd=_ROOT,
        env={"PYTHONHASHSEED": hash_seed, "COLUMNS": "200"},
        capture_output=True,
        text=True,
        timeout=_LIMIT_S,
        check=False,
    )


def test_trial_when_run_again_then_every_line_of_its_trace_is_the_same() -> None:
    first, second = (tried(trial_of(3, hours=3.5, quiet_s=3 * 3600.0)) for _ in range(2))
    assert first.trace == second.trace
    assert first.jobs > 0
    assert first.acknowledged > 0
    assert first.breach == ""


@pytest.mark.slow
def test_command_when_run_in_other_processes_then_the_digest_is_the_same() -> None:
    told = {command("--seed", "3", *_SHORT, hash_seed=seed).stdout for seed in ("1", "2")}
    assert len(told) == 1
    assert "every invariant held" in told.pop()


@pytest.mark.slow
def test_search_when_run_on_several_processes_then_each_seed_is_as_on_one() -> None:
    plan = Plan(hours=3.5, quiet_s=3 * 3600.0)
    alone = {found.seed: (found.events, found.virtual_s) for found in search(range(3), plan, jobs=1)}
    together = {found.seed: (found.events, found.virtual_s) for found in search(range(3), plan, jobs=2)}
    assert together == alone


@pytest.mark.slow
def test_command_when_an_invariant_breaks_then_it_tells_a_story_and_fails() -> None:
    found = command("--seeds", "50", "--jobs", "1", "--without", "observed-free", "--shrink-runs", "20")
    assert (found.returncode, found.stderr) == (1, "")
    for part in ("what goes wrong", "what users do", "what happened", "BROKEN  observed free: ", "--without observed"):
        assert part in found.stdout


def test_command_when_nothing_happens_then_it_fails() -> None:
    # Six minutes of seed 8 have no room for a fault.
    found = command("--seeds", "1", "--from", "8", "--hours", "0.1", "--quiet-hours", "3", "--jobs", "1")
    assert found.returncode == 1, found.stderr
    assert "nothing was proven" in found.stdout


def test_command_when_a_guard_is_unknown_then_it_is_refused() -> None:
    found = command("--without", "gravity")
    assert found.returncode == 2
    assert (
        "expected one of fencing, idempotence, observed-free, array-bound, after, guarantee, reclaim, release,"
        " gpu-memory" in found.stderr.replace("\n", " ")
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("guard", "likely", "rules"),
    [
        ("fencing", 11, {"epochs", "fenced", "one leader"}),
        ("idempotence", 3, {"once", "exactly once"}),
        ("observed-free", 0, {"observed free"}),
        ("array-bound", 1, {"at once"}),
        ("after", 0, {"after"}),
        ("guarantee", 5, {"guarantee"}),
        ("reclaim", 6, {"guarantee"}),
        ("release", 5, {"shares leak"}),
        ("gpu-memory", 5, {"gpus", "shares"}),
    ],
)
def test_search_when_a_guard_is_switched_off_then_a_seed_finds_it(guard: str, likely: int, rules: set[str]) -> None:
    # Of a product without its guards, the quiet end tells nothing.
    plan = Plan(hours=2.25, quiet_s=900.0, mutation=guard)
    # The one that found it when this was written comes first.
    seeds = dict.fromkeys((likely, *range(_MOST_SEEDS)))
    rules_broken = (try_seed(seed, plan).breach.partition(":")[0] for seed in seeds)
    assert any(rule in rules for rule in rules_broken)


def test_without_when_over_then_every_guard_is_back() -> None:
    before = [getattr(module, name) for replaced in MUTATIONS.values() for module, name, _ in replaced]
    for guard in MUTATIONS:
        with without(guard):
            module, name, replacement = MUTATIONS[guard][0]
            assert getattr(module, name) is replacement
    assert before == [getattr(module, name) for replaced in MUTATIONS.values() for module, name, _ in replaced]
