"""Which folders of ended jobs are deleted: those older than a time, and those that together exceed a size.

Rule: where something exceeds the size, it goes from the user who takes the most, so that a user who takes no more than
an equal share loses nothing to another's excess.
"""

import heapq
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, Literal

from msgspec import Struct

from voda.domain.settings import Settings

SPARED_S: Final = 86_400.0
"""A job that ended less than this ago keeps its folder whatever its size, and that does not count against the others':
somebody still has to fetch the result."""

DeletionCause = Literal["age", "size", "request"]


class EndedFolder(Struct, frozen=True, kw_only=True):
    """The folder of a job that has ended and has no worker any more."""

    job_id: str
    user: str
    pool: str
    finished_at: float
    size_bytes: int
    """What deleting it would free."""
    exceeds: bool = False
    """Whether it has more files than voda counts, so that it takes more than that, and nobody knows how much."""


class RetentionRule(Struct, frozen=True, kw_only=True):
    """How long, and up to which size together, folders are kept."""

    keep_s: float = Settings().retention_s
    """From the end of the job; 0 = without a limit."""
    keep_bytes: int = Settings().retention_bytes
    """0 = without a limit."""
    spared_s: float = SPARED_S


def expired(
    folders: Iterable[EndedFolder], rule: RetentionRule, now: float
) -> Sequence[tuple[EndedFolder, DeletionCause]]:
    """Return the folders to delete, those of the jobs that ended first first, and why."""
    oldest_first = sorted(folders, key=_by_age)
    old = [folder for folder in oldest_first if 0 < rule.keep_s <= now - folder.finished_at]
    gone = {folder.job_id for folder in old}
    rest = [one for one in oldest_first if one.job_id not in gone and now - one.finished_at >= rule.spared_s]
    found: list[tuple[EndedFolder, DeletionCause]] = [(folder, "age") for folder in old]
    # What a folder of more files than can be counted takes is not known: a limit holds only without it.
    uncounted = [one for one in rest if one.exceeds and rule.keep_bytes]
    counted = [one for one in rest if one not in uncounted]
    found += [(folder, "size") for folder in (*uncounted, *_excess(counted, rule.keep_bytes))]
    return sorted(found, key=lambda one: _by_age(one[0]))


def _excess(oldest_first: Iterable[EndedFolder], keep_bytes: int) -> Iterator[EndedFolder]:
    """Yield what goes until the rest takes no more than that: each time the oldest of the user who takes the most."""
    of_users = defaultdict[str, deque[EndedFolder]](deque)
    for folder in oldest_first:
        if folder.size_bytes > 0:
            of_users[folder.user].append(folder)
    most_first = [(-sum(one.size_bytes for one in kept), _by_age(kept[0]), user) for user, kept in of_users.items()]
    heapq.heapify(most_first)
    left_bytes = -sum(entry[0] for entry in most_first)
    while 0 < keep_bytes < left_bytes:
        negative_bytes, _, user = heapq.heappop(most_first)
        folder = of_users[user].popleft()
        left_bytes -= folder.size_bytes
        yield folder
        if kept := of_users[user]:
            heapq.heappush(most_first, (negative_bytes + folder.size_bytes, _by_age(kept[0]), user))


def _by_age(folder: EndedFolder) -> tuple[float, str]:
    return folder.finished_at, folder.job_id
