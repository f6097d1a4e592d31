"""A model of a disk: what a folder may look like after a power cut, given what was done to it until then.

Rule: what was flushed is there; of what was not, anything from nothing to everything may be, sector by sector and in
any order. A sector is whole, old or new, and bytes that an operation did not touch stay as they are ("powersafe
overwrite", which SQLite assumes of every disk too).

A file's bytes and size become durable by its own fsync, its name by that of its folder: the least that POSIX
promises. Names are lost either from the end or, worse than any journaling file system, here and there.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path, PurePosixPath
from random import Random

from tests.torture.powercut_record import Kind, Operation

SECTORS_BYTES = (64, 512, 4096)
"""Sizes of the unit that is written whole or not at all; the first is harsher than any disk."""


class Loss(StrEnum):
    """What happens to what was not flushed."""

    ALL = "all"
    """Nothing of it is there."""
    NOTHING = "nothing"
    """All of it is there, as after a crash of the process alone."""
    TAIL = "tail"
    """It was written in order, up to some moment."""
    SCATTERED = "scattered"
    """Any sectors of it were written, names were lost from the end."""
    UNORDERED = "unordered"
    """Any sectors and any names were written."""


class File:
    """One inode: what is durable of it, and what was done since."""

    def __init__(self, *, is_folder: bool = False) -> None:
        self.is_folder = is_folder
        self.durable = b""
        self.pending: list[tuple[int, Operation]] = []

    def contents(self, *, until: int | None = None) -> bytes:
        """Return all bytes as the kernel shows them, or showed them before moment `until`."""
        buffer = bytearray(self.durable)
        for moment, operation in self.pending:
            if until is None or moment < until:
                _apply(buffer, operation)
        return bytes(buffer)

    def flush(self) -> None:
        """Make everything durable."""
        self.durable = self.contents()
        self.pending.clear()

    def scattered(self, rng: Random) -> bytes:
        """Return bytes of which each sector stopped at some moment since the last flush, and so did the size."""
        sector_bytes = rng.choice(SECTORS_BYTES)
        touched: dict[int, list[int]] = {}
        sizes = [len(self.durable)]
        for number, (_, operation) in enumerate(self.pending):
            size = sizes[-1]
            first, end = operation.offset, operation.offset + len(operation.data)
            if operation.kind is Kind.TRUNCATE:
                first, end = sorted((size, operation.offset))
                sizes.append(operation.offset)
            else:
                sizes.append(max(size, end))
            for sector in range(first // sector_bytes, -(-end // sector_bytes)):
                touched.setdefault(sector, []).append(number)
        # Each sector: untouched (-1) or as it was after one of those operations that touched it.
        stops = {sector: rng.choice([-1, *numbers]) for sector, numbers in touched.items()}
        return self._stopped(stops, sector_bytes, size=rng.choice(sizes))

    def _stopped(self, stops: Mapping[int, int], sector_bytes: int, *, size: int) -> bytes:
        due: dict[int, list[int]] = {}
        for sector, number in stops.items():
            due.setdefault(number, []).append(sector)
        result = bytearray(self.durable)
        buffer = bytearray(self.durable)
        for number, (_, operation) in enumerate(self.pending):
            _apply(buffer, operation)
            for sector in due.get(number, ()):
                begin = sector * sector_bytes
                piece = bytes(buffer[begin : begin + sector_bytes]).ljust(sector_bytes, b"\0")
                _put(result, begin, piece)
        return bytes(result[:size]).ljust(size, b"\0")


@dataclass
class Folder:
    """The names in one folder: those that are durable, and what was done to them since."""

    durable: dict[str, File] = field(default_factory=dict)
    pending: list[tuple[int, Operation, File | None]] = field(default_factory=list)

    def names(self, kept: Iterable[int] | None = None) -> dict[str, File]:
        """Return the names after all changes, or after those of these numbers only."""
        names = dict(self.durable)
        chosen = range(len(self.pending)) if kept is None else kept
        for _, operation, file in (self.pending[number] for number in chosen):
            _rename(names, operation, file)
        return names

    def flush(self) -> None:
        """Make all names durable."""
        self.durable = self.names()
        self.pending.clear()


class Disk:
    """A folder and all below it, followed operation by operation."""

    def __init__(self, root: str, *, drops_flushes: bool = False) -> None:
        """Begin with an empty folder.

        Args:
            root: its path in the record.
            drops_flushes: a drive that answers a flush without doing it.
        """
        self.moment = 0
        self._root = root
        self._drops_flushes = drops_flushes
        self._inodes: dict[int, File] = {}
        self._folders: dict[str, Folder] = {root: Folder()}

    def step(self, operation: Operation) -> None:
        """Follow one more operation."""
        self.moment += 1
        match operation.kind:
            case Kind.WRITE | Kind.TRUNCATE:
                self._inodes[operation.inode].pending.append((self.moment, operation))
            case Kind.SYNC:
                if not self._drops_flushes:
                    self._inodes[operation.inode].flush()
            case Kind.SYNC_FOLDER:
                if not self._drops_flushes:
                    self._folders[operation.path].flush()
            case _:
                self._change_names(operation)

    def now(self) -> dict[str, bytes]:
        """Return path below the root -> bytes, as the kernel shows them."""
        return self._tree({path: folder.names() for path, folder in self._folders.items()}, File.contents)

    def after_power_cut(self, loss: Loss, rng: Random) -> dict[str, bytes]:
        """Return path below the root -> bytes, as they may be found after a power cut at this moment."""
        until = rng.randint(self._earliest_pending(), self.moment + 1) if loss is Loss.TAIL else None
        names = {path: folder.names(_kept(folder, loss, until, rng)) for path, folder in self._folders.items()}
        match loss:
            case Loss.ALL:
                return self._tree(names, lambda file: file.durable)
            case Loss.NOTHING:
                return self._tree(names, File.contents)
            case Loss.TAIL:
                return self._tree(names, lambda file: file.contents(until=until))
            case Loss.SCATTERED | Loss.UNORDERED:
                return self._tree(names, lambda file: file.scattered(rng))

    def _earliest_pending(self) -> int:
        # Of the first operation that no flush has made durable; the next one where there is none.
        moments = [file.pending[0][0] for file in self._inodes.values() if file.pending]
        moments += [folder.pending[0][0] for folder in self._folders.values() if folder.pending]
        return min(moments, default=self.moment + 1)

    def _change_names(self, operation: Operation) -> None:
        file: File | None = None
        if operation.kind is Kind.MAKE_FOLDER:
            file = File(is_folder=True)
            self._folders[operation.path] = Folder()
        elif operation.kind is Kind.CREATE:
            # An inode's number is given anew once its file is gone.
            file = self._inodes[operation.inode] = File()
        elif operation.kind is Kind.LINK:
            file = self._inodes[operation.inode]
        elif operation.kind is Kind.RENAME:
            file = self._folders[_parent(operation.path)].names()[_name(operation.path)]
            _refuse_move_between_folders(operation)
        self._folders[_parent(operation.path)].pending.append((self.moment, operation, file))

    def _tree(self, names: Mapping[str, Mapping[str, File]], read: Callable[[File], bytes]) -> dict[str, bytes]:
        found: dict[str, bytes] = {}
        waiting = [self._root]
        while waiting:
            folder = waiting.pop()
            for name, file in names[folder].items():
                path = f"{folder}/{name}"
                if file.is_folder:
                    waiting.append(path)
                else:
                    found[path.removeprefix(f"{self._root}/")] = read(file)
        return found


def write_out(tree: Mapping[str, bytes], folder: Path) -> None:
    """Make the files below an empty folder."""
    for path, contents in tree.items():
        place = folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(contents)


def found_on(folder: Path) -> dict[str, bytes]:
    """Return path below the folder -> bytes of all its files."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def _kept(folder: Folder, loss: Loss, until: int | None, rng: Random) -> Sequence[int] | None:
    count = len(folder.pending)
    match loss:
        case Loss.ALL:
            return ()
        case Loss.NOTHING:
            return None
        case Loss.TAIL:
            return [number for number in range(count) if until is None or folder.pending[number][0] < until]
        case Loss.SCATTERED:
            return range(rng.randint(0, count))
        case Loss.UNORDERED:
            return [number for number in range(count) if rng.random() < 0.5]


def _rename(names: dict[str, File], operation: Operation, file: File | None) -> None:
    name = _name(operation.path)
    match operation.kind:
        case Kind.UNLINK:
            names.pop(name, None)
        case Kind.RENAME if file:
            if name in names:
                names[_name(operation.data.decode())] = names.pop(name)
        case _ if file:
            names[name] = file


def _refuse_move_between_folders(operation: Operation) -> None:
    if _parent(operation.path) != _parent(operation.data.decode()):
        raise NotImplementedError(f"{operation.path} is moved to another folder, which the model does not know")


def _apply(buffer: bytearray, operation: Operation) -> None:
    if operation.kind is Kind.TRUNCATE:
        del buffer[operation.offset :]
        buffer.extend(bytes(operation.offset - len(buffer)))
    else:
        _put(buffer, operation.offset, operation.data)


def _put(buffer: bytearray, offset: int, data: bytes) -> None:
    buffer.extend(bytes(max(0, offset - len(buffer))))
    buffer[offset : offset + len(data)] = data


def _parent(path: str) -> str:
    return str(PurePosixPath(path).parent)


def _name(path: str) -> str:
    return PurePosixPath(path).name
