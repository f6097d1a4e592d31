"""The code of a program as it was submitted: kept once per content, so that each start runs what was submitted.

    STORE/<digest>/.kept          what was kept there, and where it was
    STORE/<digest>/<path>         each file as it was, at its place below the folder that it was kept of

Kept are the script, what git tracks in its repository (a large one: beside the script), and Python files that it does
not track yet; where there is no git, the Python files beside the script. All else beside them is a link to where it
lies, so that a program finds its data. Rule: whoever submits reads and writes all of it, with no more rights.
"""

import os
import shutil
import stat
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from hashlib import sha256
from itertools import count
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from voda import config
from voda.programs.program_manifest import ProgramJob
from voda.text import size

MOST_FILES: Final = 2_000
MOST_BYTES: Final = 32_000_000
MOST_FILE_BYTES: Final = 4_000_000
"""A larger file is no code: it is linked to."""
MOST_BESIDE: Final = 5_000
"""Names that are linked to."""
MOST_KEPT: Final = 500
"""Contents in a store; of more, those that were submitted longest ago go."""
_GIT_S: Final = 5.0
_TRIES: Final = 3
_RECORD: Final = ".kept"
_LEFT_OUT: Final = frozenset({"__pycache__", _RECORD})


class NotKept(Exception):
    """Why the code cannot be kept, the end of a sentence."""


class _KeptTree(Struct, frozen=True):
    folder: str
    files: tuple[str, ...]


class _KeptFile(Struct, frozen=True):
    content: bytes
    mode: int


def keep(script: Path, store: Path) -> Path:
    """Keep a script with what belongs to it, and return where it lies now.

    Args:
        script: a file.
        store: a folder of the user's, made where it is not there.

    Raises:
        NotKept: it is too much, changes all the while, or the disk refuses.
    """
    script = Path(os.path.abspath(script))
    try:
        folder, names = _chosen(script)
        for _ in range(_TRIES):
            before = _looks(folder, names)
            files = dict(_read(folder, names))
            if _looks(folder, names) == before:
                break
        else:
            raise NotKept(f"files in {folder} change all the while")
        own = str(script.relative_to(folder))
        if own not in files:
            raise NotKept(f"{script} has more than {size(MOST_FILE_BYTES)}, or is no file")
        kept = _place(store / _digest(folder, files), files)
        _write(kept, folder, files)
        _link(kept, folder, files)
        os.utime(kept)
    except OSError as error:
        raise NotKept(f"{error.filename or store}: {error.strerror}") from error
    return kept / own


def script_to_keep(words: Sequence[str], script: str, folder: str) -> str:
    """Return the script of a command that begins in a folder, where it is a Python file there; else an empty text."""
    is_there = script.endswith(".py") and script in words and os.path.isfile(os.path.join(folder, script))
    return script if is_there else ""


def with_kept_code(job: ProgramJob, store: Path) -> tuple[ProgramJob, str]:
    """Return a program with its code kept in a folder of the user's, and why it is not, one line (empty: it is).

    Where it is not, it runs as it is at each start.
    """
    if not job.script:
        return job, ""
    try:
        return replace(job, kept_script=str(keep(Path(job.working_dir, job.script), store))), ""
    except NotKept as error:
        return job, f"its code is not kept, and runs as it is at each start: {error}"


def has_too_many(store: Path, most: int = MOST_KEPT) -> bool:
    """Return whether a store holds more contents than it should."""
    try:
        return len(os.listdir(store)) > most
    except OSError:
        return False


def clear(store: Path, used: frozenset[str], *, most: int = MOST_KEPT) -> None:
    """Delete the oldest contents beyond `most`, but none of which a kept script is `used`, and nothing that a program
    has written there.
    """
    found = sorted(_contents(store), key=_submitted_at)
    for kept in found[: max(0, len(found) - most)]:
        if not any(Path(script).is_relative_to(kept) for script in used):
            with suppress(OSError, msgspec.MsgspecError):
                _delete(kept)


def is_full(store: Path, *, most: int = MOST_KEPT) -> bool:
    """Return whether there is something to `clear`."""
    return len(_contents(store)) > most


def _contents(store: Path) -> Sequence[Path]:
    """Return the folders of contents; what programs have written into one that was deleted is none."""
    with suppress(OSError):
        return [kept for kept in store.iterdir() if (kept / _RECORD).exists()]
    return ()


def _submitted_at(kept: Path) -> float:
    with suppress(OSError):
        return kept.stat().st_mtime
    return 0.0


def _chosen(script: Path) -> tuple[Path, Sequence[str]]:
    """Return a folder, and the files of it to keep by their paths in it."""
    beside = script.parent
    top = _git(beside, "rev-parse", "--show-toplevel")
    folders = [Path(top[0])] if top else []
    for folder in dict.fromkeys([*folders, beside]):
        if not script.is_relative_to(folder):
            continue
        listed = _tracked(folder) if top else _python_files(folder)
        names = dict.fromkeys([str(script.relative_to(folder)), *(listed or ())])
        total = sum(bytes_ for name in names if (bytes_ := _bytes_of(folder / name)) <= MOST_FILE_BYTES)
        if listed is not None and len(names) <= MOST_FILES and total <= MOST_BYTES:
            return folder, [*names]
    raise NotKept(f"{beside} holds more than {MOST_FILES:,} files of code or {size(MOST_BYTES)} of it")


def _tracked(folder: Path) -> Sequence[str] | None:
    """Return the files that git tracks there, and the Python files that it will; None: too many, or not in time."""
    tracked = _git(folder, "ls-files", "-z")
    new = _git(folder, "ls-files", "-z", "--others", "--exclude-standard", "--", "*.py")
    return None if tracked is None else [*tracked, *(new or ())]


def _git(folder: Path, *words: str) -> Sequence[str] | None:
    """Return what git lists; None where there is none, or it does not answer in time or with too much."""
    # No command that the repository itself names may run.
    command = ["git", "-c", "core.fsmonitor=false", "-C", str(folder), *words]
    env = {name: value for name, value in config.environment().items() if not name.startswith("GIT_")}
    try:
        done = subprocess.run(command, capture_output=True, timeout=_GIT_S, check=False, env=env)
    except (OSError, subprocess.TimeoutExpired):
        return None
    if done.returncode or done.stdout.count(b"\0") > MOST_FILES:
        return None
    ends = "\0" if b"\0" in done.stdout else "\n"
    return [name for name in os.fsdecode(done.stdout).split(ends) if name]


def _python_files(folder: Path) -> Sequence[str] | None:
    """Return the Python files beside a script, and in packages there; None: there are too many names."""
    found, left, seen = [], [folder], 0
    while left:
        with os.scandir(left.pop()) as entries:
            for entry in entries:
                if (seen := seen + 1) > MOST_BESIDE:
                    return None
                path = Path(entry.path)
                if entry.is_dir(follow_symlinks=False) and (path / "__init__.py").exists():
                    left.append(path)
                elif entry.name.endswith(".py") and entry.is_file():
                    found.append(str(path.relative_to(folder)))
    return found


def _bytes_of(path: Path) -> int:
    with suppress(OSError):
        status = path.lstat()
        return status.st_size if stat.S_ISREG(status.st_mode) else 0
    return 0


def _looks(folder: Path, names: Sequence[str]) -> Sequence[tuple[int, ...]]:
    """Return what shows that one of the files was written meanwhile."""
    found: list[tuple[int, ...]] = []
    for name in names:
        try:
            status = os.lstat(folder / name)
            found.append((status.st_ino, status.st_size, status.st_mtime_ns))
        except FileNotFoundError:
            found.append(())
    return found


def _read(folder: Path, names: Sequence[str]) -> Iterator[tuple[str, _KeptFile]]:
    """Yield the files that are kept; a link, and a file that is too large, is linked to with all else."""
    for name in names:
        try:
            handle = os.open(folder / name, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            # Deleted and not committed, a link, or not the user's to read.
            continue
        with os.fdopen(handle, "rb") as file:
            status = os.fstat(handle)
            if not stat.S_ISREG(status.st_mode) or status.st_size > MOST_FILE_BYTES:
                continue
            content = file.read(MOST_FILE_BYTES + 1)
        if len(content) <= MOST_FILE_BYTES and not {".", ".."} & {*Path(name).parts}:
            yield name, _KeptFile(content, stat.S_IMODE(status.st_mode) & 0o700)


def _digest(folder: Path, files: Mapping[str, _KeptFile]) -> str:
    digest = sha256(os.fsencode(folder) + b"\0")
    for name, file in sorted(files.items()):
        digest.update(b"%b\0%o\0%b" % (os.fsencode(name), file.mode, sha256(file.content).digest()))
    return digest.hexdigest()[:32]


def _place(usual: Path, files: Mapping[str, _KeptFile]) -> Path:
    """Return the folder of a content: where a program has written into the code that was kept, another."""
    for number in count():
        kept = usual.with_name(f"{usual.name}-{number}") if number else usual
        if not kept.exists() or ((kept / _RECORD).exists() and dict(_read(kept, [*files])) == files):
            return kept
    raise AssertionError("numbers do not end")


def _write(kept: Path, folder: Path, files: Mapping[str, _KeptFile]) -> None:
    """Write the files, whole or not at all: a folder that has its name has all of them."""
    if (kept / _RECORD).exists():
        return
    kept.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    half = kept.with_name(f"{kept.name}.{os.getpid()}")
    try:
        half.mkdir(mode=0o700)
        for name, file in files.items():
            path = half / name
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, file.mode), "wb") as opened:
                opened.write(file.content)
        (half / _RECORD).write_bytes(msgspec.json.encode(_KeptTree(str(folder), tuple(files))))
        # Another submit of the same code may have come first.
        with suppress(OSError):
            half.rename(kept)
    finally:
        shutil.rmtree(half, ignore_errors=True)


def _link(kept: Path, folder: Path, files: Mapping[str, _KeptFile]) -> None:
    """Let what is not kept be found beside what is."""
    here = {"."} | {str(parent) for name in files for parent in Path(name).parents}
    others = 0
    for place in here:
        own, source = kept / place, folder / place
        for name in os.listdir(source):
            path = os.path.normpath(os.path.join(place, name))
            if path in files or path in here or name in _LEFT_OUT:
                continue
            if (others := others + 1) > MOST_BESIDE:
                raise NotKept(f"{folder} holds more than {MOST_BESIDE:,} other names beside the code")
            with suppress(FileExistsError):
                os.symlink(source / name, own / name)


def _delete(kept: Path) -> None:
    """Delete what was kept, the links beside it, and the folders that are empty then."""
    record = msgspec.json.decode((kept / _RECORD).read_bytes(), type=_KeptTree)
    for folder, _, names in os.walk(kept, topdown=False):
        path = Path(folder)
        for name in (*names, *os.listdir(path)):
            one = path / name
            if one.is_symlink() or str(one.relative_to(kept)) in {*record.files, _RECORD}:
                one.unlink(missing_ok=True)
            elif name == "__pycache__":
                shutil.rmtree(one, ignore_errors=True)
        with suppress(OSError):
            path.rmdir()
