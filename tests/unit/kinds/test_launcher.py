"""Claims about what starts the processes of a job, as its manifest says."""

import time
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.manifests import a_jobset, a_torch_job, an_indexed_job, an_mpi_job
from voda.kinds.launcher import launcher_of
from voda.manifests.conversion import typed_manifest
from voda.programs.launchers import Launcher
from voda.programs.program_manifest import ProgramJob, program_manifest


def launcher_of_command(*words: str, args: Sequence[str] = ()) -> str:
    return launcher_of(typed_manifest(a_torch_job(container={"command": list(words), "args": list(args)})))


@pytest.mark.parametrize("image", ["", "train"])
@pytest.mark.parametrize(
    ("launcher", "expected"), [("plain", "program"), ("torchrun", "torchrun"), ("mpirun", "mpirun")]
)
@pytest.mark.parametrize("most", [1, 4])
def test_launcher_of_a_program_is_the_one_it_was_submitted_with(
    launcher: Launcher, expected: str, image: str, most: int
) -> None:
    size = 1 if launcher == "plain" else most
    job = ProgramJob(name="train", words=("python", "train.py"), launcher=launcher, most=size, image=image)
    assert launcher_of(typed_manifest(program_manifest(job))) == expected


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["torchrun", "train.py"], "torchrun"),
        (["/opt/conda/bin/torchrun", "train.py"], "torchrun"),
        (["python", "-m", "torch.distributed.run", "train.py"], "torchrun"),
        (["sh", "-c", "cd /data && exec torchrun train.py"], "torchrun"),
        (["bash", "-ec", "mpirun 'unclosed"], "mpirun"),
        (["voda", "run", "--launcher", "torchrun", "--", "train.py"], "torchrun"),
        (["voda", "run", "--launcher=torchrun", "--", "train.py"], "torchrun"),
        (["python", "train.py", "--backend", "mpirun"], "program"),
        (["sh", "-c", "# torchrun would do\nexec ./train"], "program"),
        (["python3", "-u", "-X", "faulthandler", "-m", "torch.distributed.run", "train.py"], "torchrun"),
        (["accelerate", "launch", "train.py"], "torchrun"),
        (["accelerate-launch", "train.py"], "torchrun"),
        (["python", "-m", "accelerate.commands.launch", "train.py"], "torchrun"),
        (["sh", "-c", "pip install accelerate && python train.py"], "program"),
        (["python", "train_accelerated.py"], "program"),
        (["./run.sh", "torchrun"], "program"),
        (["timeout", "1h", "numactl", "--localalloc", "torchrun", "train.py"], "torchrun"),
        (["env", "A=1", "python", "train.py", "--backend", "mpirun"], "program"),
        (["env", "-u", "A", "B=1", "nice", "-n", "5", "/usr/bin/torchrun", "train.py"], "torchrun"),
        (["env", "B=1", "nice", "-n", "5", "/usr/bin/torchrun", "train.py"], "torchrun"),
        (["nohup", "sh", "-c", "torchrun train.py"], "torchrun"),
        (["env"] * 1_000, "program"),
        ([], "program"),
    ],
)
def test_launcher_of_a_command_is_the_command_that_starts_it(words: list[str], expected: str) -> None:
    assert launcher_of_command(*words) == expected


def test_launcher_of_an_mpi_job_is_mpirun_unless_voda_run_starts_another() -> None:
    def of(*words: str) -> str:
        return launcher_of(typed_manifest(an_mpi_job(launcher={"command": list(words), "args": []})))

    assert of("voda", "run", "--host-discovery-script", "/x.sh", "--", "python", "train.py") == "mpirun"
    assert of("voda", "run", "--launcher", "torchrun", "--", "python", "train.py") == "torchrun"
    assert of("./start-all") == "mpirun"


def test_launcher_of_the_kinds_without_an_operator_of_their_own_is_in_their_command() -> None:
    assert launcher_of(typed_manifest(an_indexed_job())) == "torchrun"
    assert launcher_of(typed_manifest(a_jobset())) == "torchrun"


def test_launcher_of_a_script_of_a_megabyte_takes_no_time() -> None:
    begun = time.process_time()
    assert launcher_of_command("sh", "-c", "torchrun train.py" + " '" * 500_000) == "torchrun"
    assert launcher_of_command("sh", *["-c '"] * 100_000) == "program"
    assert time.process_time() - begun < 0.5


@given(st.lists(st.text(max_size=12), max_size=4), st.lists(st.text(max_size=12), max_size=3))
def test_launcher_of_any_command_is_told(words: list[str], args: list[str]) -> None:
    assert launcher_of_command(*words, args=args) in ("program", "torchrun", "mpirun")
