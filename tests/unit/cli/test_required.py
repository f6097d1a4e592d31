"""Claims about what a command says where an argument was forgotten, or an option given twice."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from click import Command, Context, Group
from click.testing import CliRunner, Result

from voda import config
from voda.cli import EXIT_PERMANENT, build_app
from voda.domain.errors import VodaError

SERVERS = {"serve", "up"}
"""They need nothing, and run until they are stopped: they are not run here."""


def _commands(command: Command, *names: str) -> Iterator[tuple[tuple[str, ...], Command]]:
    yield names, command
    if isinstance(command, Group):
        context = Context(command)
        for name in command.list_commands(context):
            if (found := command.get_command(context, name)) is not None:
                yield from _commands(found, *names, name)


COMMANDS = {" ".join(names): command for names, command in _commands(build_app())}


def _run(words: list[str], home: Path) -> tuple[Result, str]:
    # A voda of whoever runs the tests is neither asked nor changed.
    environment: dict[str, str | None] = {name: None for name in config.environment() if name.startswith("VODA_")}
    environment |= {"COLUMNS": "200", "VODA_HOME": str(home), "HOME": str(home), "KUBECONFIG": str(home / "none")}
    result = CliRunner().invoke(build_app(), words, env=environment)
    return result, f"{result.output}{result.exception if isinstance(result.exception, VodaError) else ''}"


@pytest.mark.parametrize("name", sorted(COMMANDS.keys() - SERVERS))
def test_command_without_arguments_says_what_is_missing_or_runs(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result, text = _run(name.split(), tmp_path)
    assert isinstance(result.exception, (SystemExit, VodaError, type(None))), repr(result.exception)
    assert "None" not in text
    if any(one.required for one in COMMANDS[name].params):
        assert result.exit_code == EXIT_PERMANENT
        assert "Missing argument" in text or "is needed" in text


def test_commands_that_are_not_run_need_nothing() -> None:
    assert [name for name in sorted(SERVERS) if any(one.required for one in COMMANDS[name].params)] == []


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["scale", "--workers", "2"], "Missing argument 'JOB'"),
        (["exec", "--", "hostname"], "Missing argument 'JOB'"),
        (["log", "copy", "a.db"], "Missing argument 'TO'"),
        (["run", "--host-discovery-script", "hosts.sh"], "Missing argument 'PROGRAM...'"),
        (["run"], "to run a program as a job: voda submit -- python train.py"),
        (["run", "python", "fit.py"], "is needed; to run a program as a job: voda submit -- python fit.py"),
        (["run", "--", "sh", "-c", "a b"], "voda submit -- sh -c 'a b'"),
    ],
)
def test_argument_when_it_is_forgotten_is_named(words: list[str], sentence: str, tmp_path: Path) -> None:
    result, text = _run(words, tmp_path)
    assert (result.exit_code, isinstance(result.exception, SystemExit)) == (EXIT_PERMANENT, True)
    assert sentence in text


def test_pool_of_a_submit_when_given_twice_is_refused(tmp_path: Path) -> None:
    result, text = _run(["submit", "--pool", "any", "--pool", "default", "--", "true"], tmp_path)
    assert result.exit_code == EXIT_PERMANENT
    assert "'--pool': expected it once, got 'any' and 'default'" in text


@pytest.mark.parametrize("name", ["logs", "token create", "log verify", "run"])
def test_help_marks_what_is_required(name: str, tmp_path: Path) -> None:
    needed = [one for one in COMMANDS[name].params if one.required]
    assert _run([*name.split(), "--help"], tmp_path)[1].count("[required]") == len(needed)
