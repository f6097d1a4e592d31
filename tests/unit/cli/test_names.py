"""Claims about what the program is called."""

import subprocess
import sys

import pytest
from click.testing import CliRunner

from voda.cli import build_app

CALL = "import sys; sys.argv[0] = {name!r}; from voda.cli import main; main()"


@pytest.mark.parametrize(
    ("name", "shown"), [("/usr/bin/voda", "Usage: voda "), ("/x/kubectl-voda", "Usage: kubectl voda ")]
)
def test_help_when_called_as_a_plugin_names_the_plugin(name: str, shown: str) -> None:
    command = [sys.executable, "-c", CALL.format(name=name), "--help"]
    said = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    assert shown in said


LIBRARIES = {"aiohttp", "asyncio", "msgspec", "numpy", "pydantic", "rich", "scipy", "sqlalchemy", "yaml"}


def _imported(code: str) -> set[str]:
    shown = [sys.executable, "-c", f"import sys; {code}; print(*sys.modules)"]
    done = subprocess.run(shown, capture_output=True, text=True, timeout=60, check=True)
    return LIBRARIES & set(done.stdout.split())


def test_finding_every_command_imports_nothing_that_is_slow() -> None:
    assert _imported("from voda.cli import build_app; build_app().list_commands(None)") == set()


def test_finding_one_command_imports_no_other() -> None:
    code = (
        "import sys; from voda.cli import build_app; build_app().get_command(None, 'submit');"
        "print(*(name for name in sys.modules if name.startswith('voda.cli.commands.') and name.count('.') == 4))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == ["voda.cli.commands.jobs.submit"]


def test_submitting_a_program_needs_neither_a_terminal_s_library_nor_yaml() -> None:
    assert _imported("import voda.cli.program, voda.cli.manifests, voda.cli.watch.submitted_jobs") == {"msgspec"}


@pytest.mark.parametrize(
    ("words", "expected"),
    [("voda whoa", "plain,whoami"), ("voda get -o wi", "plain,wide"), ("voda set-policy elastic-fi", "elastic-fifo")],
)
def test_shell_completes(words: str, expected: str) -> None:
    environment = {"_VODA_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    command = [sys.executable, "-c", CALL.format(name="/usr/bin/voda")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert expected in done.stdout


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_of_a_shell_asks_voda(shell: str) -> None:
    assert f"_VODA_COMPLETE={shell}_complete" in CliRunner().invoke(build_app(), ["completion", shell]).stdout
