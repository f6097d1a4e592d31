"""The segments of a log: a folder that is its archive, or a copy of it.

Rule: segments are only added to a folder. A segment appears under its name when it is complete and on the disk, and one
process at a time adds segments.
"""

import fcntl
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path

from voda.domain.errors import InvalidInput, LogDamaged, StoreNotWritable, StoreUnavailable
from voda.events.envelope import Sealed
from voda.files import replaced_file, sync
from voda.log.append_plan import GroupPlan
from voda.log.archive.segment import (
    SegmentFile,
    events_of,
    header_of,
    pack_segment,
    parse_segment_name,
    proven_events,
)
from voda.log.archive.verify import PAGE, HashChain, Progress, VerifyReport

SEGMENT_EVENTS = 50_000
SEGMENT_BYTES = 64_000_000
"""Of event bodies; a segment that reaches either is closed. One is held in memory while it is written or read."""
_PART = ".voda-part"


class Archive:
    """Segments as they were when the archive was opened."""

    def __init__(self, path: Path, segments: Sequence[SegmentFile]) -> None:
        self.path = path
        """Of their folder."""
        self.segments = segments
        """One after the other, from position 1 on."""

    @classmethod
    def open(cls, folder: Path) -> "Archive":
        """List the segments of a folder; raises LogDamaged if one is missing, or two hold the same positions."""
        try:
            segments = [segment for path in folder.iterdir() if (segment := parse_segment_name(path))]
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
        """Absolute path."""
        return str(self.path.absolute())

    @property
    def position(self) -> int:
        """Position of the last event; 0 = there is none."""
        return self.segments[-1].last if self.segments else 0

    def chain(self, position: int | None = None) -> HashChain:
        """Return the hash chain at a position, by default at the end.

        The headers of whole segments are believed; only the events of a partly used segment are proven.

        Raises:
            LogDamaged, LogTooNew: a segment cannot be read.
            InvalidInput: the archive ends before.
        """
        position = self.position if position is None else position
        if position > self.position:
            raise InvalidInput(f"{self.path} ends at position {self.position}, expected at least {position}")
        chain = HashChain()
        for segment in self.segments:
            if segment.last <= position:
                chain.heads.update(header_of(segment).chain_heads())
                chain.position = segment.last
        for _ in self.groups(chain, position):
            pass
        return chain

    def groups(self, chain: HashChain, until: int | None = None) -> Iterator[GroupPlan]:
        """Yield the proven events from the chain's position to `until` (None = the end), in pages; moves the chain."""
        end = self.position if until is None else until
        previous = ""
        for segment in self.segments:
            if segment.last > chain.position and segment.after < end:
                rows = islice(
                    proven_events(segment, chain, previous), None if end >= segment.last else end - chain.position
                )
                while page := list(islice(rows, PAGE)):
                    yield GroupPlan(page, {row[1]: chain.heads[row[1]] for row in page}, [])
            previous = segment.name

    def at(self, position: int) -> Sealed | None:
        """Return the event at a position, or None; raises LogDamaged if its segment is not what was written."""
        for segment in self.segments:
            if segment.first <= position <= segment.last:
                return events_of(segment)[position - segment.first]
        return None

    def add(self, events: Sequence[Sealed], chain: HashChain) -> None:
        """Write the events that follow as a segment, durably, and move the chain from the archive's end to the new."""
        name, content = pack_segment(events, chain, self.segments[-1].name if self.segments else "")
        path = self.path / name
        try:
            with replaced_file(path, durably=True, mode=0o600, draft=self.path / _PART) as file:
                file.write(content)
        except OSError as error:
            raise StoreNotWritable(f"{path} cannot be written: {error.strerror}; free some space") from error
        segment = parse_segment_name(path)
        assert segment is not None, name
        self.segments = [*self.segments, segment]

    def secure(self, after: int = 0) -> None:
        """Flush the segments behind a position to the disk, whichever process wrote them, or raise StoreNotWritable."""
        try:
            for segment in self.segments:
                if segment.last > after:
                    sync(segment.path)
            sync(self.path)
            # The folder may be new; if its parent cannot be read, the operator must flush it.
            with suppress(PermissionError):
                sync(self.path.resolve().parent)
        except OSError as error:
            raise StoreNotWritable(f"{self.path} cannot be brought to the disk: {error.strerror}") from error


@contextmanager
def open_to_add(folder: Path) -> Iterator[Archive]:
    """Open a folder to add segments, with no other process adding; the folder is made if there is none.

    Raises:
        StoreUnavailable: another process adds to it.
        StoreNotWritable: it cannot be made or written.
        InvalidInput, LogDamaged: see Archive.open.
    """
    try:
        # Manifests may hold secrets, in a copy as in the log.
        folder.mkdir(mode=0o700, exist_ok=True)
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
            raise StoreUnavailable(f"{folder}: another process writes to it ({error.strerror})") from error
        archive = Archive.open(folder)
        # A killed process may have left it.
        (folder / _PART).unlink(missing_ok=True)
        yield archive
    finally:
        os.close(handle)


def verify_archive(archive: Archive, chain: HashChain, *, progress: Progress | None = None) -> VerifyReport:
    """Prove the archive's events, or name the first damaged one; a new chain is moved to the archive's end."""
    damaged_at, problem = None, ""
    try:
        for _ in archive.groups(chain):
            if progress:
                progress(chain.position, archive.position)
    except LogDamaged as error:
        damaged_at, problem = error.position, str(error)
    return VerifyReport(chain.position, len(chain.heads), 0, damaged_at, problem)


def _refuse_misfit(folder: Path, end: int, segment: SegmentFile) -> None:
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
