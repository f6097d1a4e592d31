"""Without its extras voda misses the modules that are named here, and says in one sentence what to install."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

_WITHOUT = "import sys; sys.modules.update(dict.fromkeys(('asyncpg', 'kubernetes_asyncio', 'nats')))\n"
_VODA = _WITHOUT + "from voda.cli import main; main()"
_IMPORT_ALL = f"""{_WITHOUT}
import importlib, json, pkgutil, voda
lacking = {{}}
for module in pkgutil.walk_packages(voda.__path__, "voda."):
    if module.name.startswith(("voda.callbacks.", "voda.__main__")):
        continue
    try:
        importlib.import_module(module.name)
    except ModuleNotFoundError as missing:
        lacking.setdefault(missing.name.partition(".")[0], []).append(module.name)
print(json.dumps(lacking))
"""


def python(program: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True, timeout=60, check=False
    )


def test_modules_that_need_an_extra_are_those_of_its_adapter() -> None:
    done = python(_IMPORT_ALL)
    assert done.returncode == 0, done.stderr
    lacking = json.loads(done.stdout)
    assert lacking.pop("kubernetes_asyncio") == ["voda.kubernetes_client.credentials"]
    assert all(name.startswith(("voda.log.jetstream.", "voda.log.lease.jetstream")) for name in lacking.pop("nats"))
    assert all(name.startswith(("voda.log.sql.postgres", "voda.log.lease.postgres")) for name in lacking.pop("asyncpg"))
    assert lacking == {}


@pytest.mark.parametrize(
    ("words", "extra"),
    [
        (["serve"], "kubernetes"),
        (["log", "migrate", "nats://127.0.0.1:1/log"], "nats"),
        (["log", "migrate", "postgresql://voda@127.0.0.1:1/log"], "postgres"),
    ],
)
def test_what_needs_an_extra_that_is_not_installed_says_so(words: list[str], extra: str, tmp_path: Path) -> None:
    done = python(_VODA, *words)
    assert done.returncode != 0
    (sentence,) = done.stderr.splitlines()
    assert sentence.endswith(f"(voda's extra {extra})")
