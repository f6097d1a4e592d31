"""What voda reads of processes that are anybody's: neither names nor environments mislead it or hold it up."""

import os
import resource
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.needs import missing
from voda.process_table import _processes_of, marked_processes, variable

OTHER = os.geteuid() or 65_534
"""A uid that is not root's."""
WAIT = "print(flush=True); input()"


@contextmanager
def a_process(script: str = WAIT, env: Mapping[str, str] | None = None) -> Iterator[int]:
    """Run a script that prints a line and waits for its input to end; yield its pid."""
    user = OTHER if os.geteuid() == 0 else None
    process = subprocess.Popen(
        ["/usr/bin/python3", "-I", "-S", "-c", script],
        env=env or {},
        user=user,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd="/",
    )
    with process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"\n"
            yield process.pid
        finally:
            process.kill()


def test_process_that_is_called_like_a_line_on_its_user_belongs_to_its_user(tmp_path: Path) -> None:
    forge = f"open('/proc/self/comm', 'w', newline='').write('\\rUid:\\t0\\r'); {WAIT}"
    with a_process(forge, {"VODA_REPLICA": str(tmp_path)}) as pid:
        assert Path(f"/proc/{pid}/comm").read_bytes() == b"\rUid:\t0\r\n"
        assert [found for found, _ in marked_processes(tmp_path, uid=OTHER)] == [pid]
        assert [found for found, _ in marked_processes(tmp_path, uid=OTHER + 1)] == []


@pytest.fixture
def large_environments() -> Iterator[None]:
    """Let processes start with environments of up to 6 MiB: Linux takes a quarter of the limit of their stacks."""
    before = resource.getrlimit(resource.RLIMIT_STACK)
    try:
        resource.setrlimit(resource.RLIMIT_STACK, (24 << 20, before[1]))
    except ValueError:
        missing("the stack of a process is limited to less than 24 MiB: ulimit -Hs unlimited")
    yield
    resource.setrlimit(resource.RLIMIT_STACK, before)


@pytest.mark.usefixtures("large_environments")
def test_environment_that_is_too_large_is_not_looked_at_beyond_a_bound(tmp_path: Path) -> None:
    mark, large = {"VODA_REPLICA": str(tmp_path)}, {f"A{index}": "x" * 100_000 for index in range(32)}
    with a_process(env=mark | large) as early, a_process(env=large | mark):
        assert [(pid, len(environment)) for pid, environment in marked_processes(tmp_path)] == [(early, 2 << 20)]


@pytest.mark.usefixtures("large_environments")
def test_environments_that_are_too_large_together_are_looked_at_less_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("voda.process_table._ENVIRONMENTS_BYTES", 3 << 20)
    env = {"VODA_REPLICA": str(tmp_path), **{f"A{index}": "x" * 100_000 for index in range(32)}}
    with ExitStack() as stack:
        pids = {stack.enter_context(a_process(env=env)) for _ in range(4)}
        found = dict(marked_processes(tmp_path, uid=OTHER))
        assert found.keys() == pids
        assert sum(map(len, found.values())) <= (3 << 20) + len(pids) * (32 << 10)


def test_processes_that_are_very_many_are_not_all_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with ExitStack() as stack:
        pids = {stack.enter_context(a_process(env={"VODA_REPLICA": str(tmp_path)})) for _ in range(4)}
        assert {pid for pid, _ in marked_processes(tmp_path, uid=OTHER)} == pids
        first, *_ = processes = [name for name in _processes_of(OTHER) if int(name) in pids]
        monkeypatch.setattr("voda.process_table._processes_of", lambda _uid: iter(processes))
        monkeypatch.setattr("voda.process_table._MOST_PROCESSES", 1)
        assert [pid for pid, _ in marked_processes(tmp_path, uid=OTHER)] == [int(first)]


def test_environment_of_a_user_who_has_no_job_here_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    system_open = os.open

    def noting(path: str, flags: int) -> int:
        opened.append(str(path))
        return system_open(path, flags)

    with a_process(env={"VODA_REPLICA": str(tmp_path)}) as pid:
        monkeypatch.setattr("voda.process_table.os.open", noting)
        assert list(marked_processes(tmp_path, uid=OTHER + 1)) == []
        assert f"/proc/{pid}/environ" not in opened
        assert [found for found, _ in marked_processes(tmp_path, uid=OTHER)] == [pid]
        assert f"/proc/{pid}/environ" in opened


@pytest.mark.parametrize(
    ("environment", "value"),
    [
        *((b"A=1\0B=2\0", b"1"), (b"BA=1\0A=2\0", b"2"), (b"B=A=1\0", b""), (b"A=\0A=2", b""), (b"", b"")),
        *((b"A=1", b"1"), (b"\0\0A=1=2", b"1=2")),
    ],
)
def test_variable_when_looked_for_is_the_first_of_its_name(environment: bytes, value: bytes) -> None:
    assert variable(environment, "A") == value
