"""Claims about the program around the commands: its version, and output that cannot be written."""

import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from click import Context, Group
from click.testing import CliRunner

from tests.needs import needs
from voda import __version__
from voda.cli import EXIT_PERMANENT, build_app

MAIN = [sys.executable, "-c", "from voda.cli import main; main()"]
FULL = Path("/dev/full")
WIDEST = 78
"""80 columns less the margins; wider lines would be broken in the middle of a sentence."""


def test_version_when_asked_for_is_shown() -> None:
    result = CliRunner().invoke(build_app(), ["--version"])
    assert (result.exit_code, result.stdout) == (0, f"voda {__version__}\n")


@needs(FULL.exists(), "this system has no /dev/full")
def test_output_when_the_disk_is_full_fails_in_one_sentence() -> None:
    with FULL.open("wb") as full:
        done = subprocess.run([*MAIN, "policies"], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
    assert done.returncode == EXIT_PERMANENT
    assert done.stderr == "voda: the output cannot be written: No space left on device\n"


def test_output_when_nobody_reads_it_ends_without_a_word() -> None:
    with subprocess.Popen([*MAIN, "policies"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as reader:
        assert reader.stdout is not None
        assert reader.stderr is not None
        reader.stdout.close()
        assert reader.stderr.read() == ""
        assert reader.wait(timeout=60) != 0


def test_output_when_it_is_closed_ends_without_a_word() -> None:
    done = subprocess.run(["sh", "-c", f"{shlex.join(MAIN)} policies >&-"], stderr=subprocess.PIPE, timeout=60)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["settings", "--ratelimit", "abc"], "expected a number, got 'abc'"),
        (["settings", "--ratelimit", "nan"], "expected a number, got 'nan'"),
        (["settings", "--ratelimit", "-inf"], "expected a number, got '-inf'"),
        (["get", "-o", "xml"], "expected one of table, wide, json, yaml, name, got 'xml'"),
        (["get", "--limit", "-3"], "expected 0 or more, got"),
        (["scale", "digits", "--min", "x"], "expected a whole number, got 'x'"),
        (["submit", "--min", "0", "a.yaml"], "expected 1 or more, got '0'"),
        (["submit", "--launcher", "x", "--", "true"], "expected one of mpirun, torchrun, plain, got 'x'"),
    ],
)
def test_option_when_its_value_is_wrong_says_what_is_expected(arguments: list[str], sentence: str) -> None:
    result = CliRunner().invoke(build_app(), arguments, env={"COLUMNS": "200"})
    assert result.exit_code == EXIT_PERMANENT
    assert sentence in result.stderr
    assert "Input should" not in result.stderr
    assert "Value error" not in result.stderr


def test_help_texts_fit_a_terminal_of_80_columns() -> None:
    app = build_app()
    found = [app.get_command(Context(app), name) for name in app.list_commands(Context(app))]
    texts = [command.help or "" for command in found if command is not None and not isinstance(command, Group)]
    assert [line for text in texts for line in text.splitlines() if len(line) > WIDEST] == []


def test_help_of_simulate_tells_the_defaults() -> None:
    shown = CliRunner().invoke(build_app(), ["simulate", "--help"], env={"COLUMNS": "200"}).stdout
    for default in ("elastic-fifo if none is named", "steady if none is named", "by default the workload's"):
        assert default in shown


def test_simulate_ends_with_a_command_that_runs_as_written(tmp_path: Path) -> None:
    arguments = ["simulate", "--workload", "poisson", "--jobs", "3", "--out", str(tmp_path / "my runs")]
    last = CliRunner().invoke(build_app(), arguments).stdout.splitlines()[-1]
    _, program, *explain = shlex.split(last)
    assert program == "voda"
    assert CliRunner().invoke(build_app(), explain).exit_code == 0
