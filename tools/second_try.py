"""Run tests on real peers, then those that failed once more, alone: `python -m tools.second_try ARGUMENT...`.

What passes then is listed as unstable, and its first failure stands above. Rule: whatever fails twice fails the run,
and so do more than MOST_UNSTABLE tests that failed once, which is no chance.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest

MOST_UNSTABLE: Final = 3


def main(arguments: Sequence[str]) -> int:
    """Run pytest with these arguments, failed tests twice; return its exit status."""
    with tempfile.TemporaryDirectory() as folder:
        status = _pytest(*arguments, "-o", f"cache_dir={folder}")
        if status != pytest.ExitCode.TESTS_FAILED:
            return status
        failed = _failed(Path(folder))
    if not 0 < len(failed) <= MOST_UNSTABLE:
        print(f"second try: none, for {len(failed)} tests failed, more than {MOST_UNSTABLE}", flush=True)
        return status
    print(f"second try: alone, what failed: {' '.join(failed)}", flush=True)
    if (again := _pytest("-n", "0", *failed)) == pytest.ExitCode.OK:
        print("\n".join(f"unstable: {name} failed, and passed alone; its failure stands above" for name in failed))
    return again


def _pytest(*arguments: str) -> int:
    environment = {**os.environ, "PYTEST_ADDOPTS": ""}
    return subprocess.run([sys.executable, "-m", "pytest", *arguments], env=environment, check=False).returncode


def _failed(cache: Path) -> Sequence[str]:
    """Return the tests that pytest notes as failed, by name."""
    noted = cache / "v" / "cache" / "lastfailed"
    return sorted(json.loads(noted.read_text())) if noted.exists() else []


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
