"""A wall clock that jumps: what voda and its processes take for the time of day is ahead or behind by a drawn span.

Rule: the steady clock is left alone, as the kernel's is when somebody sets the time.
"""

from pathlib import Path
from random import Random
from typing import Final

_SITE: Final = '''"""Adds to the time of day what the file beside this one says."""

import os
import time

_now, _path = time.time, os.path.join(os.path.dirname(__file__), "ahead_s")


def ahead_time() -> float:
    try:
        with open(_path, encoding="ascii") as file:
            return _now() + float(file.read() or 0)
    except (OSError, ValueError):
        return _now()


time.time = ahead_time
'''
_JUMPS_S: Final = (-3_600.0, -60.0, -1.0, 0.0, 0.5, 30.0, 600.0, 40 * 86_400.0)
"""The last one is beyond what folders are kept for."""


class JumpingClock:
    """The clock of one voda; `variables` are those of its environment."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        folder.chmod(0o755)
        self._ahead = folder / "ahead_s"
        (folder / "sitecustomize.py").write_text(_SITE)
        self.variables = {"PYTHONPATH": str(folder)}

    def jump(self, chance: Random) -> float:
        """Set the clock, and return by how many seconds it is ahead now."""
        ahead_s = chance.choice(_JUMPS_S)
        draft = self._ahead.with_suffix(".new")
        draft.write_text(str(ahead_s))
        draft.replace(self._ahead)
        return ahead_s
