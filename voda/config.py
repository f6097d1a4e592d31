"""The only reader of the environment.

Rule: every variable voda knows is read by one function here, and what was found is passed on as a value.
"""

import os
from pathlib import Path


def data_folder() -> Path | None:
    """Return the folder of public data sets that VODA_DATA names; None where it is unset or empty."""
    named = os.environ.get("VODA_DATA", "").strip()
    return Path(named).expanduser() if named else None
