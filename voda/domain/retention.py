"""Which folders of ended jobs are deleted: those older than a time, and the oldest of those that exceed a size."""

from collections.abc import Iterable, Sequence
from typing import Final, Literal

from msgspec import Struct

RETENTION_S: Final = 30 * 86_400.0
RETENTION_BYTES: Final = 20_000_000_000
OUTPUT_BYTES: Final = 1_000_000_000
SPARED_S: Final = 86_400.0
"""A job that ended less than this ago keeps its folder whatever its size: somebody still has to fetch the result."""

DeletionCause = Literal["age", "size", "request"]


class EndedFolder(Struct, frozen=True, kw_only=True):
    """The folder of a job that has ended and has no worker any more."""

    job_id: str
    user: str
    pool: str
    finished_at: float
    size_bytes: int
    """What deleting it would free."""


class RetentionRule(Struct, frozen=True, kw_only=True):
    """How long, and up to which size together, folders are kept."""

    keep_s: float = RETENTION_S
    """From the end of the job; 0 = without a limit."""
    keep_bytes: int = RETENTION_BYTES
    """0 = without a limit."""
    spared_s: float = SPARED_S


def expired(
    folders: Iterable[EndedFolder], rule: RetentionRule, now: float
) -> Sequence[tuple[EndedFolder, DeletionCause]]:
    """Return the folders to delete, those of the jobs that ended first first, and why."""
    oldest_first = sorted(folders, key=lambda folder: (folder.finished_at, folder.job_id))
    left_bytes = sum(folder.size_bytes for folder in oldest_first)
    found: list[tuple[EndedFolder, DeletionCause]] = []
    for folder in oldest_first:
        age_s = now - folder.finished_at
        is_old = 0 < rule.keep_s <= age_s
        is_too_much = 0 < rule.keep_bytes < left_bytes and age_s >= rule.spared_s and folder.size_bytes > 0
        if is_old or is_too_much:
            found.append((folder, "age" if is_old else "size"))
            left_bytes -= folder.size_bytes
    return found
