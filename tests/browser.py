"""Where a browser for tests is, and what looks at pages for those who cannot see or use a mouse."""

import shutil
from pathlib import Path
from typing import Final

AXE: Final = Path(__file__).parents[1] / "web" / "node_modules" / "axe-core" / "axe.min.js"
"""`make web` brings it."""


def chromium() -> str | None:
    """Return the path of a Chromium; None: there is none."""
    return shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
