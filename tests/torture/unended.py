"""What this machine shows of a job that does not end, while voda still runs: a finding that explains itself.

Rule: it reads what is there and changes nothing; what cannot be read is left out.
"""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_MOST_TEXT = 600
"""Characters of a file."""
_MOST_WORDS = 60
"""Characters of a command line."""


def traces(home: Path, job_id: str) -> str:
    """Return the job's record, its replicas' own files and its processes, in one line.

    Args:
        home: of voda.
        job_id: of a job that should have ended.
    """
    folder = home / "jobs" / job_id / ".voda"
    files = [folder / "record.json", *sorted(folder.glob("replicas/*/*"))]
    seen = [f"{path.relative_to(folder)} {text}" for path in files if (text := _text(path))]
    return "; ".join([*seen, *_processes(home, job_id)]) or "there is nothing of it on this machine"


def _processes(home: Path, job_id: str) -> Iterator[str]:
    mark = f"VODA_REPLICA={home.resolve()}/jobs/{job_id}/".encode()
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if mark in (process / "environ").read_bytes():
                words = " ".join((process / "cmdline").read_text(errors="replace").replace("\0", " ").split())
                yield f"process {process.name} of group {os.getpgid(int(process.name))}: {words[:_MOST_WORDS]}"


def _text(path: Path) -> str:
    with suppress(OSError):
        return path.read_text(errors="replace").strip()[:_MOST_TEXT]
    return ""
