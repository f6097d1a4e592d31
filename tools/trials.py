"""Runs the tests against a mutant: in a fork of this process, only those that execute the changed line.

One run of the tests beforehand notes which test executes which line of the pure core, and how long it takes. Nothing is
written into the sources: an import hook of the fork puts the changed text in place of the module's.
"""

import ast
import gc
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Collection, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[1]
TESTS = ("tests/unit", "tests/contract", "tests/replay", "tests/integration/memory_cluster")
"""A busy machine does not break these; the other tests of `make test` find more at most."""
ARGUMENTS = (
    *("-x", "-q", "-m", "not slow and not postgres and not nats"),
    *("-p", "no:cacheprovider", "-W", "ignore::pytest.PytestAssertRewriteWarning"),
)
RULES = "tests/unit/test_pure_values.py"
"""Rules about all classes of the pure core: they find mutants of headers, though they execute no line of them."""
LIBRARIES = (
    *("aiohttp.web", "hypothesis", "msgspec", "numpy", "scipy.optimize", "sqlalchemy.ext.asyncio", "click"),
    *("_pytest.config", "pytest_asyncio.plugin", "schemathesis.pytest.plugin", "xdist.plugin"),
)
"""They take long to import, so they are imported once, before the forks."""
MEMORY_BYTES = 6 * 2**30
COLLECTION_S = 600.0
SPARE_S = 10.0
SLOWER = 10.0
"""A test with a mutant may compute for SPARE_S and SLOWER times as long as it takes without."""
BUSY = 6.0
"""As much longer it may take by the clock: other programs run beside it, or it waits."""


@dataclass
class Executed:
    """How long each test takes, and which tests execute a line: `path:line` -> tests.

    Among the tests of a line is `file::` for all tests of a file, and an empty name for the import of the module.
    """

    seconds: dict[str, float] = field(default_factory=dict)
    tests: Mapping[str, Sequence[str]] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)
    """These fail without a mutant, so they find none."""
    measured_at: float = 0.0

    def of_lines(self, path: str, lines: Collection[int]) -> set[str]:
        """Return the tests that execute one of the lines; of lines that the import executes, those of the module."""
        names = self._of({f"{path}:{line}" for line in lines})
        if not lines or "" in names:
            room = path.rpartition("/")[0]
            names = (self._of_module(f"{path}:") or self._of_module(f"{room}/")) | {f"{RULES}::"}
        files = tuple(name for name in names if name.endswith("::"))
        return {test for test in self.seconds if test in names or test.startswith(files)}.difference(self.failed)

    def _of_module(self, prefix: str) -> set[str]:
        return self._of({place for place in self.tests if place.startswith(prefix)}) - {""}

    def _of(self, places: Collection[str]) -> set[str]:
        return {test for place in places for test in self.tests.get(place, ())}


def lines_of(text: str, line: int) -> range:
    """Return the lines of the statement at a line of a function, its header if it has a body; none outside."""
    tree = ast.parse(text)
    functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    if not any(node.body[0].lineno <= line <= (node.end_lineno or 0) for node in functions):
        return range(0)
    lines = range(line, line + 1)
    for node in ast.walk(tree):
        if isinstance(node, ast.stmt | ast.excepthandler) and node.lineno <= line <= (last := _last_line(node)):
            lines = range(node.lineno, last + 1)
    return lines


def _last_line(node: ast.stmt | ast.excepthandler) -> int:
    body = getattr(node, "body", None)
    return max(node.lineno, body[0].lineno - 1) if body else node.end_lineno or node.lineno


class Lines:
    """A plug-in of pytest: notes which lines of some folders each test executes."""

    def __init__(self, folders: Sequence[Path]) -> None:
        import coverage

        self.executed = Executed(measured_at=time.time())
        self._test = ""
        include = [f"{folder}/*" for folder in folders]
        self._coverage = coverage.Coverage(data_file=None, config_file=False, include=include)
        self._coverage.start()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Note the lines under the test's name, and how long it takes."""
        self._test = item.nodeid
        self._coverage.switch_context(item.nodeid)
        start = time.perf_counter()
        result = yield
        self.executed.seconds[item.nodeid] = round(time.perf_counter() - start, 4)
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[object]) -> Generator[None, object, object]:
        """Note the lines of a fixture that tests share under the name of their file."""
        if fixturedef.scope != "function":
            self._coverage.switch_context(self._test.partition("::")[0] + "::")
        try:
            return (yield)
        finally:
            self._coverage.switch_context(self._test)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note the tests that fail."""
        if report.failed:
            self.executed.failed.append(report.nodeid)

    def pytest_sessionfinish(self) -> None:
        """Collect what was noted."""
        self._coverage.stop()
        data = self._coverage.get_data()
        self.executed.tests = {
            f"{Path(file).relative_to(ROOT)}:{line}": tests
            for file in data.measured_files()
            for line, tests in data.contexts_by_lineno(file).items()
        }


class Choice:
    """A plug-in of pytest: runs the chosen tests, the quick ones first, each within its time; writes which one runs."""

    def __init__(self, tests: Collection[str], seconds: Mapping[str, float], current: Path) -> None:
        self._tests = tests
        self._seconds = seconds
        self._current = current

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Leave out the tests that were not chosen, but not those that are new."""
        items[:] = [item for item in items if item.nodeid in self._tests or item.nodeid not in self._seconds]
        items.sort(key=lambda item: self._seconds.get(item.nodeid, 0.0))

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> None:
        """End the process when the test takes too long."""
        self._current.write_text(item.nodeid)
        limit_s = SPARE_S + SLOWER * self._seconds.get(item.nodeid, 1.0)
        signal.setitimer(signal.ITIMER_PROF, limit_s)
        signal.setitimer(signal.ITIMER_REAL, BUSY * limit_s)


class _Changed(importlib.machinery.SourceFileLoader):
    """Loads a module from another text than its file's."""

    def __init__(self, name: str, file: Path, text: str) -> None:
        super().__init__(name, str(file))
        self._text = text

    def get_code(self, fullname: str) -> CodeType:
        return compile(self._text, self.path, "exec")


@dataclass
class Finder(importlib.abc.MetaPathFinder):
    """Finds one module of the project with another text."""

    path: str
    text: str

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return the module with its changed text, and None for every other module."""
        if fullname != self.path.removesuffix(".py").removesuffix("/__init__").replace("/", "."):
            return None
        file = ROOT / self.path
        return importlib.util.spec_from_file_location(fullname, file, loader=_Changed(fullname, file, self.text))


@dataclass(frozen=True)
class Outcome:
    """Whether a mutant survives, else which test found it, and whether by taking too long."""

    survived: bool
    test: str = ""
    too_long: bool = False


def run(arguments: Sequence[str], plugin: object) -> int:
    """Run tests in this process; return the exit code of pytest."""
    os.chdir(ROOT)
    sys.path.insert(0, str(ROOT))
    return int(pytest.main([*ARGUMENTS, *arguments], plugins=[plugin]))


def measure(folders: Sequence[Path]) -> Executed:
    """Run all tests and return which of them execute which lines."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "executed.json"
        if (process := os.fork()) == 0:
            plugin = Lines(folders)
            code = run((*TESTS, "--maxfail=0"), plugin)
            file.write_text(json.dumps(vars(plugin.executed)))
            os._exit(code)
        if os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) not in (0, pytest.ExitCode.TESTS_FAILED):
            sys.exit("the tests cannot be run")
        executed = Executed(**json.loads(file.read_text()))
        print(*(f"fails without a mutant, left out: {test}" for test in executed.failed), sep="\n", flush=True)
        return executed


def attempt(finder: Finder, line: int, executed: Executed) -> Outcome:
    """Run the tests that execute a line with the changed text, those of its own room first.

    Of a line that the import executes, such as the header of a class, all tests of the room are run.
    """
    lines = lines_of((ROOT / finder.path).read_text(encoding="utf-8"), line)
    chosen = executed.of_lines(finder.path, lines)
    room = f"tests/unit/{Path(finder.path).parts[1]}/"
    near = {test for test in (chosen if lines else executed.seconds) if test.startswith(room)}.difference(
        executed.failed
    )
    for tests, folder in ((near, room), (chosen - near, "tests")):
        outcome = _fork(finder, tests, executed, folder)
        if not outcome.survived:
            return outcome
    return Outcome(survived=True)


def _fork(finder: Finder, tests: Collection[str], executed: Executed, folder: str) -> Outcome:
    """Run tests in a fork, with them those of a room that are newer than what was measured."""
    there = {str(file.relative_to(ROOT)): file.stat().st_mtime for file in (ROOT / folder).rglob("test_*.py")}
    new = {file for file, changed_at in there.items() if folder != "tests" and changed_at > executed.measured_at}
    files = sorted(new | {test.partition("::")[0] for test in tests} & there.keys())
    if not files:
        return Outcome(survived=True)
    gc.freeze()  # Else each collection of the fork would walk through all that was loaded before it.
    with tempfile.NamedTemporaryFile() as current:
        if (process := os.fork()) == 0:
            _be_mutant(finder)
            os._exit(run(files, Choice(tests, executed.seconds, Path(current.name))))
        status = os.waitpid(process, 0)[1]
        _end_children(process)
        too_long = os.WIFSIGNALED(status) and os.WTERMSIG(status) in (signal.SIGALRM, signal.SIGPROF)
        passed = os.WIFEXITED(status) and os.WEXITSTATUS(status) in (0, pytest.ExitCode.NO_TESTS_COLLECTED)
        return Outcome(passed, "" if passed else Path(current.name).read_text(), too_long)


def _be_mutant(finder: Finder) -> None:
    """Prepare this process, a fork, for tests of a mutant: what it prints is lost, and it cannot take all memory."""
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(nothing, stream)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    signal.setitimer(signal.ITIMER_REAL, COLLECTION_S)
    sys.meta_path.insert(0, finder)


def _end_children(session: int) -> None:
    try:
        os.killpg(session, signal.SIGKILL)
    except ProcessLookupError:
        return


def warm_up() -> None:
    """Import what takes long, once for all forks."""
    for library in LIBRARIES:
        importlib.import_module(library)
