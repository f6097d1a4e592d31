"""What `make test` and `make check` run: every test but those by hand, and none twice."""

import shlex
import subprocess
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
WAIT_S = 60
RUNNERS = ("pytest", "tools.second_try")
BY_HAND = ("tests/e2e/node", "tests/e2e/gpu")


def runs_of_pytest(target: str) -> Sequence[Sequence[str]]:
    """Return the arguments of each pytest that a target of the Makefile runs."""
    shown = subprocess.run(
        ["make", "--dry-run", "--no-print-directory", target],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=True,
    )
    words = [
        shlex.split(line)
        for line in shown.stdout.replace("\\\n", " ").splitlines()
        if any(f" -m {each}" in line for each in RUNNERS)
    ]
    return [line[line.index("-m") + 2 :] for line in words]


def without_report(run: Sequence[str]) -> Sequence[str]:
    """Return the arguments that say which tests run, and how."""
    return [word for word in run if not word.startswith(("--durations", "--timeout"))]


def test_make_test_and_make_check_run_every_test_and_none_twice() -> None:
    (quick,), (slow, kubernetes) = runs_of_pytest("test"), [without_report(run) for run in runs_of_pytest("check")]
    # The same folders, and of their tests those that have a marker and those that have not.
    assert [*slow[:-1], f"not {slow[-1]}"] == quick
    assert slow[-2:] == ["-m", "slow"]
    # The folders that both leave out are all that the third runs, without a choice, and those by hand.
    assert kubernetes[:4:2] == ["-n", "--dist"]
    apart = [*(word for word in kubernetes[4:] if not word.startswith("-")), *BY_HAND]
    assert {f"--ignore={folder}" for folder in apart} == {word for word in slow if word.startswith("--ignore")}
    assert all((ROOT / folder).is_dir() for folder in apart)
    # Beside those they only say how many processes share the work.
    rest = [word for word in slow[:-2] if not word.startswith("--ignore")]
    assert rest[::2] == ["-n", "--dist"]
    assert len(rest) == 4


def test_ci_run_runs_make_test_and_make_check() -> None:
    lines = (ROOT / ".ci" / "run").read_text().splitlines()
    steps = [line.partition(" step ")[2] for line in lines if " step make " in line]
    style = "make -j 3 --output-sync=target lint type frameworks"
    assert steps == ["make setup", style, "make test", "make check", "make e2e-older"]
