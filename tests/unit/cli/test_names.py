"""Claims about what the program is called."""

import subprocess
import sys

import pytest

CALL = "import sys; sys.argv[0] = {name!r}; from voda.cli import main; main()"


@pytest.mark.parametrize(
    ("name", "shown"), [("/usr/bin/voda", "Usage: voda "), ("/x/kubectl-voda", "Usage: kubectl voda ")]
)
def test_help_when_called_as_a_plugin_names_the_plugin(name: str, shown: str) -> None:
    command = [sys.executable, "-c", CALL.format(name=name), "--help"]
    said = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    assert shown in said
    assert ("--install-completion" in said) is ("kubectl" not in name)


def test_help_imports_nothing_that_is_slow() -> None:
    code = "import sys; from voda.cli import build_app; build_app(); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    slow = {"aiohttp", "asyncio", "msgspec", "numpy", "scipy", "sqlalchemy", "yaml", "rich.table"}
    assert slow & set(done.stdout.split()) == set()
