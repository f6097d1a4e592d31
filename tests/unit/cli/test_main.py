"""Claims about the program around the commands: its version, and output that cannot be written."""

import re
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
from voda.domain.errors import InvalidInput
from voda.domain.settings import Settings
from voda.kinds.registry import KINDS

MAIN = [sys.executable, "-c", "from voda.cli import main; main()"]
FULL = Path("/dev/full")
ROOT = Path(__file__).parents[3]
WIDEST = 78
"""80 columns less the margins; wider lines would be broken in the middle of a sentence."""


def test_help_and_readme_name_all_kinds_of_jobs() -> None:
    submit, serve = (
        " ".join(CliRunner().invoke(build_app(), [name, "--help"]).stdout.split()) for name in ("submit", "serve")
    )
    readme = " ".join((ROOT / "README.md").read_text("utf-8").partition("## Where it stands")[2].split())
    assert [kind for kind in KINDS if f"{kind}s" not in submit or f"{kind}s" not in serve] == []
    # Trainer makes a JobSet of a TrainJob: there is none to submit.
    assert [kind for kind in (*KINDS, "TrainJob") if kind not in readme] == []
    assert "TrainJobs" in serve


def test_help_of_nodes_names_the_options_of_its_default_command() -> None:
    shown = CliRunner().invoke(build_app(), ["nodes", "--help"]).stdout
    assert "  voda nodes -o wide --watch" in shown
    assert "voda nodes list --help shows the options" in shown


@pytest.mark.parametrize("given", ["255", "995", "5", "0", "1500", "150%", "-10", "0.25", "9" * 5_000])
def test_part_of_a_gpu_that_cannot_be_is_refused_by_one_sentence(given: str) -> None:
    result = CliRunner().invoke(build_app(), ["submit", "--print", "--gpu-milli", given, "--", "true"])
    hint = "; whole GPUs are --gpus-per-worker N" if given == "1500" else ""
    assert str(result.exception) == (
        f"--gpu-milli: expected 10, 20, ... to 990 thousandths of a GPU, got {given[:40]!r}{hint}"
    )


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
        (["settings", "--ratelimit", "abc"], "expected a span such as 30 (seconds), 90m, 4h or 1d12h, got 'abc'"),
        (["settings", "--span-penalty", "nan"], "expected a number, got 'nan'"),
        (["settings", "--span-penalty", "-inf"], "expected a number, got '-inf'"),
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


@pytest.mark.parametrize(
    ("bounds", "sentence"),
    [
        (["--min-np", "16"], "--sizes is 4,8: expected one of --min-np to --max-np, 16 or more"),
        (["--max-np", "3"], "--sizes is 4,8: expected one of --min-np to --max-np, 1 to 3"),
    ],
)
def test_sizes_of_a_program_none_of_which_is_within_the_bounds_are_refused(bounds: list[str], sentence: str) -> None:
    arguments = ["run", "--sizes", "4,8", *bounds, "--host-discovery-script", "/bin/true", "--", "true"]
    result = CliRunner().invoke(build_app(), arguments)
    assert isinstance(result.exception, InvalidInput)
    assert str(result.exception) == sentence


@pytest.mark.parametrize(
    ("arguments", "suggested"),
    [
        ("stop digits", "Did you mean 'delete'?"),
        ("pause digits", "Did you mean 'halt'?"),
        ("sumbit train.yaml", "Did you mean 'submit'?"),
        ("history", ""),
        ("submit --gpus 2 -- true", "Did you mean '--gpus-per-worker'?"),
        ("submit --gpu 2 -- true", "Did you mean '--gpus-per-worker' or '--gpu-milli' or '--gpu-memory'?"),
        ("submit --wrkers 2 -- true", "Did you mean '--workers'?"),
        ("submit --colour red -- true", ""),
    ],
)
def test_unknown_word_is_answered_with_what_it_means_or_with_nothing(arguments: str, suggested: str) -> None:
    told = words_of(CliRunner().invoke(build_app(), arguments.split()).output)
    assert "No such" in told
    assert "".join(told.partition("Did you mean")[1:]) == suggested


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        ("exec digits ls", "voda exec digits -- ls"),
        ("exec -i ls --replica 0 ls -l", "voda exec -i ls --replica 0 -- ls -l"),
    ],
)
def test_exec_when_its_command_does_not_follow_dashes_says_how_to_write_it(arguments: str, meant: str) -> None:
    result = CliRunner().invoke(build_app(), arguments.split(), prog_name="voda")
    assert result.exit_code == EXIT_PERMANENT
    assert f"the command to run stands after --: `{meant}`" in words_of(result.output)


def test_exec_when_an_option_is_wrong_does_not_speak_of_dashes() -> None:
    told = words_of(CliRunner().invoke(build_app(), ["exec", "digits", "--replcia", "1", "--", "ls"]).output)
    assert "Did you mean '--replica'?" in told
    assert "stands after" not in told


@pytest.mark.parametrize("options", ["-x", "-ix"])
def test_exec_when_a_short_option_is_unknown_names_it(options: str) -> None:
    told = words_of(CliRunner().invoke(build_app(), ["exec", options, "digits", "ls"]).output)
    assert "No such option '-x'" in told
    assert "stands after" not in told


def words_of(panel: str) -> str:
    """Return the text of an error, without the frame and the line breaks of its panel."""
    return " ".join(re.sub(r"[│╭╮╰╯─]", " ", panel).split())


def test_help_texts_fit_a_terminal_of_80_columns() -> None:
    app = build_app()
    found = [app.get_command(Context(app), name) for name in app.list_commands(Context(app))]
    texts = [command.help or "" for command in found if command is not None and not isinstance(command, Group)]
    assert [line for text in texts for line in text.splitlines() if len(line) > WIDEST] == []


def test_span_is_a_bare_number_of_seconds_too_wherever_one_is_asked_for() -> None:
    context = Context(app := build_app())
    assert isinstance(app, Group)
    for command, option in (
        ("wait", "timeout"),
        ("settings", "ratelimit_s"),
        ("up", "exec_time"),
    ):
        found = app.get_command(context, command)
        assert found is not None
        parameter = next(one for one in found.params if one.name == option)
        assert [parameter.type.convert(text, None, None) for text in ("5", "5s", "1m30s")] == [5, 5, 90]


def test_help_of_up_tells_the_defaults_also_those_of_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    shown = CliRunner().invoke(build_app(), ["up", "--help"]).stdout
    for option, default in (
        ("--policy", Settings().policy),
        ("--placer", Settings().placer),
        ("--ratelimit", "5s in a new pool"),
        ("--exec-idle", "4h"),
        ("--port", "8470"),
    ):
        line = next(line for line in shown.splitlines() if f"│ {option} " in line)
        assert re.search(rf"\[default: \(?{default}\b", line), line


def test_python_m_voda_is_the_command_line() -> None:
    done = subprocess.run([sys.executable, "-m", "voda", "--version"], stdout=subprocess.PIPE, text=True, timeout=60)
    assert done.stdout == f"voda {__version__}\n"


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


def test_simulate_and_run_at_sizes_of_an_unset_variable_are_refused() -> None:
    for words in ("simulate -w poisson --jobs 2 --sizes=", "run --host-discovery-script hosts.sh --sizes= -- true"):
        refused = CliRunner().invoke(build_app(), words.split())
        assert refused.exit_code != 0
        assert str(refused.exception).startswith("--sizes: expected 1 to ")
        assert str(refused.exception).endswith(", such as 2, 1-4, 2-16:2 or 1,2,4,8, got ''")


def test_simulate_says_which_users_of_fair_share_have_no_jobs() -> None:
    arguments = ["simulate", "--workload", "poisson", "--jobs", "2", "--fair-share", "nobody=2"]
    shown = CliRunner().invoke(build_app(), arguments)
    assert shown.exit_code == 0
    assert "warning: --fair-share: no job of poisson is of user 'nobody'\n" in shown.stderr
