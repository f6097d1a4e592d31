"""A client's journal: what it asked and what it was told, on the disk before anything else happens.

Rule: a record is fsynced before the request that it announces is sent, and before the next one is thought of.
"""

import json
import os
import time
from pathlib import Path


class Journal:
    """A file of JSON lines that only grows."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def asked(self, operation: int, attempt: int, **wish: object) -> None:
        """Note a request that is about to be sent."""
        self._write({"kind": "asked", "op": operation, "try": attempt, "at": now(), **wish})

    def answered(self, operation: int, attempt: int, outcome: str, **told: object) -> None:
        """Note what came back; `outcome` is acknowledged, refused or unknown."""
        self._write({"kind": "answered", "op": operation, "try": attempt, "at": now(), "outcome": outcome, **told})

    def close(self) -> None:
        """Write no more."""
        os.close(self._file)

    def _write(self, record: dict[str, object]) -> None:
        os.write(self._file, json.dumps(record).encode() + b"\n")
        os.fsync(self._file)


def now() -> float:
    """Return the machine's steady clock, seconds: the same for all processes."""
    return time.clock_gettime(time.CLOCK_MONOTONIC)
