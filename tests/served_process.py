"""A `voda serve` as a process of its own, to be killed and told to end.

Rule: what it says is kept in a file, for whoever has to find out why a test failed.
"""

import re
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.waiting import DEADLINE_S
from voda import config

PROGRAM = ("-c", "import voda.cli; voda.cli.main()")
"""What this interpreter is given to be voda."""
_URL = re.compile(r"serves (http://\S+)")
_ROOT = Path(__file__).resolve().parents[1]


class ServedProcess:
    """One process.

    Args:
        said: file that what it says is added to.
        arguments: of the command line.
        program: what is run instead of voda; gets the same arguments.
        environment: laid over the few variables that are passed on.
    """

    def __init__(
        self,
        said: Path,
        arguments: Sequence[str],
        *,
        program: Sequence[str] = PROGRAM,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        said.parent.mkdir(parents=True, exist_ok=True)
        self.said = said
        with said.open("ab") as file:
            self.process = subprocess.Popen(
                [sys.executable, *program, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                env={**_inherited(), "COLUMNS": "200", **(environment or {})},
            )

    @property
    def text(self) -> str:
        """What it said so far."""
        return self.said.read_text(errors="replace")

    @property
    def url(self) -> str:
        """Where its API is; empty until it serves."""
        found = _URL.search(self.text)
        return found[1] if found else ""

    @property
    def leads(self) -> bool:
        """Whether it said so last."""
        return self.text.rfind("leads pool=") > self.text.rfind("stepped down")

    def kill(self) -> None:
        """End it as a crash would."""
        self.process.kill()
        self.process.wait(DEADLINE_S)

    def terminate(self) -> None:
        """Tell it to end, and do not wait."""
        self.process.send_signal(signal.SIGTERM)

    def is_over(self) -> bool:
        """Whether it has ended."""
        return self.process.poll() is not None


def _inherited() -> dict[str, str]:
    inherited = config.environment()
    kept = {name: inherited[name] for name in ("PATH", "HOME", "LANG") if name in inherited}
    return {**kept, "PYTHONPATH": str(_ROOT)}
