"""What jobs compute that share this machine's GPU; `make e2e-gpu` has the tests."""

from pathlib import Path
from typing import Final

PROGRAM: Final = Path(__file__).with_name("program.py")
"""What these jobs run; it needs torch."""
