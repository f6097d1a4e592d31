"""What a program said last: its own words, without those of torchrun or mpirun about it, and how its rank ended. Pure.

Rules: any text is taken, whoever wrote it, in time linear in its length; where nothing of the program is left, mpirun's
words stand, without rulers. The forms are those of torchrun 1.13 to 2.13, Open MPI 4.1 and 5.0, MPICH 5.0.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

MOST_BYTES: Final = 64 << 10
"""Of the end of an output that are looked at: torchrun alone says 2 KiB, and 300 bytes of each rank."""
_LINE: Final = 1_000
"""Characters of a line that are looked at."""
_RECENT: Final = 40
"""Lines: an exception that is farther from the end was survived."""
_LONGEST_BOX: Final = 20
_HEADER: Final = "Traceback (most recent call last):"
_PREFIX: Final = re.compile(r"(?:\[(?!rank\d)[a-z]\w{0,40}\d\]:)?(?:\[rank(\d{1,6})\]: ?)?")
"""Of torchrun's --tee, and of torch once its ranks have met."""
_EXCEPTION: Final = re.compile(r"[A-Za-z_][\w.]*(?:: .*|:?$)")
_ECHO: Final = re.compile(
    r"(?i)connection (closed|reset|refused)|broken pipe|remote (worker|process|peer)|peer (closed|gone)|"
    r"DistBackendError|DistNetworkError|heartbeat|Rendezvous(Closed|Connection|GracefulExit)Error|SignalException"
)
"""What a rank or its agent says of the end of another one, or of a signal."""
_CHILD_FAILED: Final = re.compile(r"(torch\.distributed\.elastic\.multiprocessing\.errors\.)?ChildFailedError\b")
_TORCHRUN_LOG: Final = re.compile(
    r"[DIWEF]\d{4} [\d:.]+ \d+ torch/distributed/(elastic/|run\.py|launcher/)"
    r"|(DEBUG|INFO|WARNING|ERROR|CRITICAL):torch\.distributed\.(elastic|run|launcher)"
    r"|\[[\d ,:-]+\] torch\.distributed\.(elastic|run|launcher)"
    r"|Setting OMP_NUM_THREADS environment variable for each process"
)
_RANK_FAILED: Final = re.compile(r"failed \(exitcode: (-?\d{1,10})\) local_rank")
_SUMMARY_CODE: Final = re.compile(r"\s+exitcode\s*: (-?\d{1,10})\b")
_SUMMARY_RANK: Final = re.compile(r"\s+rank\s*: (\d{1,10}) ")
_SUMMARY_TRACEBACK: Final = re.compile(r"\s+traceback : Traceback \(most recent call last\):$")
_RULE: Final = re.compile(r"([-=])\1{39,}")
_MPIRUN: Final = re.compile(r"\b(prterun|mpirun|mpiexec|orterun|PRTE|MPI_ABORT|Primary job)\b")
_MPIRUN_ENDED: Final = re.compile(
    r"\bexited on\s+signal (?P<signal>\d{1,3})\b|^ +Exit code: +(?P<code>\d{1,10})$", re.M
)
_MPICH: Final = re.compile(
    r"=   (BAD TERMINATION|PID \d|EXIT CODE:|CLEANING UP|YOU CAN IGNORE)"
    r"|YOUR APPLICATION TERMINATED WITH THE EXIT STRING"
    r"|This typically refers to a problem with your application|Please see the FAQ page for debugging suggestions"
)
_MPICH_SIGNAL: Final = re.compile(r"YOUR APPLICATION TERMINATED WITH .* \(signal (\d{1,3})\)")
_NOT_FOUND: Final = re.compile(
    r"No module named '?(?P<module>[\w.]{1,100})"
    r"|(?:^|: |command )(?P<command>[\w.+-]{1,100}): (?:command )?not found$",
    re.MULTILINE,
)
_NO_MODULE: Final = re.compile(
    r".*python[\d.]*: (No module named [^ ]+(; .*)?"
    r"|Error while finding module specification for .+ \(ModuleNotFoundError: No module named .+\))"
)
"""What Python says of one that it was to run with -m."""
_KILLED: Final = "voda: the kernel killed"
"""What its shim says where a memory limit was reached, as the exit does."""
_NOTE: Final = re.compile(rf"voda run: |\[voda: |{_KILLED}")
_TRY_FAILED: Final = re.compile(r"voda run: the program failed with exit code (\d{1,10})\b")
_SHOWN_AGAIN: Final = "voda run: its last lines:"


@dataclass(frozen=True, slots=True)
class LastWords:
    """The end of what a program printed."""

    lines: tuple[str, ...] = ()
    """Its own, oldest first; blank ones left out."""
    exception: str = ""
    """That ended it, as Python shows it: `ValueError: label 37 out of range`."""
    exit_code: int | None = None
    """Of the rank that failed first, as its launcher says; negative: the signal. None: it does not say."""
    failures: int = 0
    """Times that its launcher says a rank failed."""
    hint: str = ""
    """What to do about it, where that is known."""
    is_own: bool = False
    """Whether the program said them, or else its launcher alone."""

    @property
    def is_echo(self) -> bool:
        """Whether it only says that another rank ended."""
        return _ECHO.search(self.exception) is not None

    def text(self, lines: int = 1) -> str:
        """Return what says most: the exception, else the last lines; empty where it printed nothing."""
        if self.exception:
            return self.exception
        found = self.lines[-lines:]
        if not any(map(_has_words, found)):
            found = tuple(line for line in self.lines if _has_words(line))[-lines:]
        return "\n".join(found)


def last_words(printed: bytes | str) -> LastWords:
    """Return the last words in the end of an output; of what is longer than MOST_BYTES, the end is taken."""
    text = printed[-MOST_BYTES:]
    text = text if isinstance(text, str) else text.decode("utf-8", "replace")
    # What a progress bar wrote over is not seen on a terminal either.
    lines = [line.rstrip().rpartition("\r")[2][:_LINE] for line in text.split("\n")]
    lines = [line for line in lines if line]
    parser = _OutputParser()
    parser.read(lines)
    own = [line for _, line in parser.kept]
    others = [line for line in lines if not (_RULE.fullmatch(line) or line.startswith(_KILLED))]
    return LastWords(
        # All that a summary tells is the code.
        lines=tuple(own or (() if parser.has_summary else others)),
        exception="" if (parser.exit_code or 0) < 0 else _exception(parser.kept, parser.rank) or parser.reported,
        exit_code=parser.exit_code,
        failures=parser.tries or parser.ranks_failed,
        is_own=bool(own),
    )


def lacks_module(said: LastWords) -> bool:
    """Return whether a program ended with exit code 1 for want of a Python module, which was the last that it said, or
    Python of one that it was to run with -m: another try would end the same. One that was caught comes before other
    words, and a signal has another cause.
    """
    is_last = said.lines[-1:] == (said.exception,) and said.exception.startswith("ModuleNotFoundError: ")
    is_of_python = any(map(_NO_MODULE.fullmatch, said.lines[-1:]))
    return (is_last or is_of_python) and said.exit_code in (None, 1)


def is_not_found(said: str) -> bool:
    """Return whether the last words are that a command or a module was not found."""
    return _NOT_FOUND.search(said) is not None


def hint(said: str, python: str | None, path: str) -> str:
    """Return what a job had and what to add, to follow such last words; empty where they are others.

    Args:
        said: the last words, or why the program could not be started.
        python: that the job's PATH names; empty: none; None: nobody has looked.
        path: the job's PATH.
    """
    if (found := _NOT_FOUND.search(said)) is None:
        return ""
    missing = f"module {found['module']}" if found["module"] else f"command {found['command']}"
    had = "its PATH was" if python is None else f"its Python was {python or 'none'}, its PATH"
    return (
        f"{had} {path[:_LINE] or 'empty'}: where another environment has the"
        f" {missing}, submit with it active, give --env PATH=..., or name its programs by their paths"
    )


class _OutputParser:
    """Takes an output apart, line by line: what the program said, and what its launcher says of its end."""

    def __init__(self) -> None:
        self.kept: list[tuple[str, str]] = []
        """Rank, empty where it is not known, and line of the program."""
        self.exit_code: int | None = None
        self.rank = ""
        """That failed first."""
        self.reported = ""
        """Its exception, where torchrun shows it."""
        self.has_summary = False
        self.ranks_failed = 0
        self.tries = 0
        """Of `voda run`, that failed."""
        self._is_shown_again = False

    def read(self, lines: Sequence[str]) -> None:
        index = 0
        while index < len(lines):
            line = lines[index]
            if _CHILD_FAILED.match(line):
                self.has_summary = True
                self._drop_traceback()
                index = self._summary(lines, index + 1)
            elif (end := _after_box(lines, index)) != index:
                self._note_end(_MPIRUN_ENDED.search("\n".join(lines[index:end])))
                index = end
            else:
                self._line(line)
                index += 1

    def _line(self, line: str) -> None:
        if _TORCHRUN_LOG.match(line):
            if found := _RANK_FAILED.search(line):
                self.exit_code, self.ranks_failed = int(found[1]), self.ranks_failed + 1
        elif _MPICH.match(line):
            if found := _MPICH_SIGNAL.match(line):
                self.exit_code = -int(found[1])
            if self.kept and _RULE.fullmatch(self.kept[-1][1]):
                self.kept.pop()
        elif _NOTE.match(line):
            self._is_shown_again = line == _SHOWN_AGAIN
            if found := _TRY_FAILED.match(line):
                self.tries += 1
                self.exit_code = int(found[1]) if self.exit_code is None else self.exit_code
        elif not (self._is_shown_again and line.startswith("  | ")):
            prefix = _PREFIX.match(line)
            assert prefix is not None, "it matches an empty string"
            self.kept.append((prefix[1] or "", line[prefix.end() :]))

    def _note_end(self, found: re.Match[str] | None) -> None:
        if found is not None:
            self.exit_code = -int(found["signal"]) if found["signal"] else int(found["code"])

    def _drop_traceback(self) -> None:
        """Drop the traceback of torchrun's own that the last lines are, from its header on."""
        while self.kept and (line := self.kept[-1][1]).startswith(" "):
            self.kept.pop()
            if line.endswith(_HEADER):
                return
        if self.kept and self.kept[-1][1] == _HEADER:
            self.kept.pop()

    def _summary(self, lines: Sequence[str], index: int) -> int:
        """Read torchrun's summary of the ranks, of which the first to fail comes last; return the index behind it."""
        if index == len(lines) or not _RULE.fullmatch(lines[index]):
            return index
        rule, is_traceback = lines[index], False
        for at in range(index + 1, len(lines)):
            line = lines[at]
            if line == rule:
                return at + 1
            if found := _SUMMARY_CODE.match(line):
                self.exit_code, self.reported, is_traceback = int(found[1]), "", False
            elif found := _SUMMARY_RANK.match(line):
                self.rank = found[1]
            elif _SUMMARY_TRACEBACK.match(line):
                is_traceback = True
            elif is_traceback and _EXCEPTION.match(line.removeprefix("  ")):
                self.reported = line.strip()
        return len(lines)


def _exception(kept: Sequence[tuple[str, str]], first: str) -> str:
    """Return the exception that ended a program: that of the rank which failed first, where the ranks are known, and
    rather one that does not speak of the end of another.
    """
    found: list[tuple[str, str]] = []
    open_in: set[str] = set()
    for index, (rank, line) in enumerate(kept):
        if line.endswith(_HEADER):
            open_in.add(rank)
        elif rank in open_in and not line.startswith(" "):
            open_in.discard(rank)
            if len(kept) - index <= _RECENT and _EXCEPTION.match(line):
                found.append((rank, line))
    own = [line for rank, line in found if rank == first] or [line for _, line in found]
    told = [line for line in own if not _ECHO.search(line)] or own
    return told[-1] if told else ""


def _has_words(line: str) -> bool:
    return any(map(str.isalnum, line))


def _after_box(lines: Sequence[str], index: int) -> int:
    """Return the index behind a box of mpirun that begins at an index; the same where none does."""
    if _RULE.fullmatch(lines[index]):
        for end in range(index + 1, min(index + _LONGEST_BOX, len(lines))):
            if _RULE.fullmatch(lines[end]):
                return end + 1 if _names_mpirun(lines[index:end]) else index
    return index


def _names_mpirun(lines: Iterable[str]) -> bool:
    return any(map(_MPIRUN.search, lines))
