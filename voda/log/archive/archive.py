"""A folder of segments: the archive of a log, and its backup, which is the same thing.

Rule: the folder is only ever added to. A segment appears under its name when it is complete and on the disk, and one
process at a time adds.
"""

import fcntl
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path

from voda.domain.errors import InvalidInput, LogDamaged, StoreNotWritable, StoreUnavailable
from voda.events.envelope import Sealed
from voda.log.append_plan import GroupPlan
from voda.log.archive.segment import SegmentName, events_of, header_of, named, packed, proven
from voda.log.archive.verify import PAGE, HashChain, Progress, VerifyReport

SEGMENT_EVENTS = 50_000
SEGMENT_BYTES = 64_000_000
"""Of event bodies; a segment that reaches either is closed. One is held in memory while it is written or read."""
_PART = ".voda-part"


class Archive:
    """The segments of a folder, as they were when it was opened.

    Args:
        folder: where they are.
        segments: one after the other, from position 1 on.
    """

    def __init__(self, folder: Path, segments: Sequence[SegmentName]) -> None:
        self.folder = folder
        self.segments = segments

    @classmethod
    def open(cls, folder: Path) -> "Archive":
        """List the segments.

        Raises:
            InvalidInput: there is no such folder.
            LogDamaged: a segment is missing, or two hold the same positions.
        """
        try:
            segments = [found for path in folder.iterdir() if (found := named(path))]
        except OSError as error:
            raise InvalidInput(f"{folder} cannot be read: {error.strerror}") from error
        segments.sort(key=lambda segment: (segment.first, segment.last))
        end = 0
        for segment in segments:
            _refuse_misfit(folder, end, segment)
            end = segment.last
        return cls(folder, segments)

    @property
    def place(self) -> str:
        """Where it is, from whatever folder one looks."""
        return str(self.folder.absolute())

    @property
    def position(self) -> int:
        """Position of the last event; 0 = there is none."""
        return self.segments[-1].last if self.segments else 0

    def walk(self, position: int | None = None) -> HashChain:
        """Return a walk that is at a position, by default at the end.

        Of whole segments the headers are believed; only what lies in a part of one is proven.

        Raises:
            LogDamaged, LogTooNew: a segment cannot be read.
            InvalidInput: the archive ends before.
        """
        position = self.position if position is None else position
        if position > self.position:
            raise InvalidInput(f"{self.folder} ends at position {self.position}, expected at least {position}")
        walk = HashChain()
        for segment in self.segments:
            if segment.last <= position:
                walk.heads.update(header_of(segment).heads)
                walk.position = segment.last
        for _ in self.groups(walk, position):
            pass
        return walk

    def groups(self, walk: HashChain, until: int | None = None) -> Iterator[GroupPlan]:
        """Yield what comes after the walk's position, page by page, each event proven; the walk moves along.

        Args:
            walk: at a position that the archive reaches.
            until: last position; None = the end.

        Raises:
            LogDamaged, LogTooNew: a segment is not what was written.
        """
        end = self.position if until is None else until
        previous = ""
        for segment in self.segments:
            if segment.last > walk.position and segment.after < end:
                rows = islice(proven(segment, walk, previous), None if end >= segment.last else end - walk.position)
                while page := list(islice(rows, PAGE)):
                    yield GroupPlan(page, {row[1]: walk.heads[row[1]] for row in page}, [])
            previous = segment.name

    def at(self, position: int) -> Sealed | None:
        """Return the event at a position; None where there is none.

        Raises:
            LogDamaged, LogTooNew: its segment is not what was written.
        """
        for segment in self.segments:
            if segment.first <= position <= segment.last:
                return events_of(segment)[position - segment.first]
        return None

    def add(self, events: Sequence[Sealed], walk: HashChain) -> None:
        """Write a segment; it is on the disk when this returns.

        Args:
            events: what comes next; proven here.
            walk: at the archive's end; it is moved to the new one.

        Raises:
            LogDamaged: the events do not follow.
            StoreNotWritable: the folder cannot be written.
        """
        name, content = packed(events, walk, self.segments[-1].name if self.segments else "")
        part, path = self.folder / _PART, self.folder / name
        try:
            with part.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            part.rename(path)
            sync(self.folder)
        except OSError as error:
            part.unlink(missing_ok=True)
            raise StoreNotWritable(f"{path} cannot be written: {error.strerror}; free some space") from error
        segment = named(path)
        assert segment is not None, name
        self.segments = [*self.segments, segment]

    def secure(self, after: int = 0) -> None:
        """Have the segments behind a position on the disk, whoever wrote them.

        Raises:
            StoreNotWritable: the disk does not take them.
        """
        try:
            for segment in self.segments:
                if segment.last > after:
                    sync(segment.path)
            sync(self.folder)
            # The folder may be new; where its parent may not be read, that is the operator's to see to.
            with suppress(PermissionError):
                sync(self.folder.resolve().parent)
        except OSError as error:
            raise StoreNotWritable(f"{self.folder} cannot be brought to the disk: {error.strerror}") from error


@contextmanager
def adding(folder: Path) -> Iterator[Archive]:
    """Open the archive alone, to add to it; the folder is made where there is none.

    Raises:
        StoreUnavailable: another process adds to it.
        StoreNotWritable: it cannot be made or written.
        InvalidInput, LogDamaged: see Archive.open.
    """
    try:
        folder.mkdir(exist_ok=True)
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except FileNotFoundError:
        raise InvalidInput(f"cannot create {folder}: folder {folder.parent} does not exist; create it first") from None
    except (FileExistsError, NotADirectoryError):
        raise InvalidInput(f"{folder} is a file, expected a folder of segments") from None
    except OSError as error:
        raise StoreNotWritable(f"{folder} cannot be written: {error.strerror}") from error
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise StoreUnavailable(f"{folder}: another process writes a backup there ({error.strerror})") from error
        archive = Archive.open(folder)
        # What a killed one left behind.
        (folder / _PART).unlink(missing_ok=True)
        yield archive
    finally:
        os.close(handle)


def verify_archive(archive: Archive, walk: HashChain, *, progress: Progress | None = None) -> VerifyReport:
    """Prove the archive's events, and have the walk at its end; or name the first that is not what was written.

    Args:
        archive: the segments.
        walk: a new one.
        progress: called once per page.
    """
    try:
        for _ in archive.groups(walk):
            if progress:
                progress(walk.position, archive.position)
    except LogDamaged as error:
        return VerifyReport(walk.position, len(walk.heads), 0, error.position, str(error))
    return VerifyReport(walk.position, len(walk.heads), 0, None, "")


def sync(path: Path) -> None:
    """Have a file or folder on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _refuse_misfit(folder: Path, end: int, segment: SegmentName) -> None:
    if segment.first > end + 1:
        raise LogDamaged(
            f"{folder}: positions {end + 1} to {segment.after} are missing: the segment before {segment.name} is not"
            " there; put it back from another backup",
            end + 1,
        )
    if segment.first <= end or segment.last < segment.first:
        raise LogDamaged(
            f"{folder}: {segment.name} holds positions that another segment holds too: only one of them belongs here",
            segment.first,
        )
