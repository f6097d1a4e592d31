"""Where a browser for tests is, and what looks at pages for those who cannot see or use a mouse."""

import shutil
from pathlib import Path
from typing import Final

from tools.bootstrap import BROWSERS

AXE: Final = Path(__file__).parents[1] / "web" / "node_modules" / "axe-core" / "axe.min.js"
"""`make web` brings it."""


def chromium() -> str | None:
    """Return the path of a Chromium; None: there is none."""
    return next(filter(None, map(shutil.which, BROWSERS)), None)
