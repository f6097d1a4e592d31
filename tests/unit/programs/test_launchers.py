"""Which launcher a program gets, by its command and by what it imports."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voda.programs.launchers import (
    launcher_in_command,
    launcher_of_script,
    program_in_command,
    script_in_command,
)


@pytest.mark.parametrize(
    ("source", "launcher", "reason"),
    [
        ("import horovod.torch as hvd", "mpirun", "it imports horovod"),
        ("from mpi4py import MPI\nimport torch.distributed", "mpirun", "it imports mpi4py"),
        ("def main():\n  import torch.distributed as dist", "torchrun", "it imports torch.distributed"),
        ("from torch import distributed", "torchrun", "it imports torch.distributed"),
        ("from torch.distributed.fsdp import FSDP", "torchrun", "it imports torch.distributed"),
        ("import torch\ntorch.distributed.init_process_group()", "torchrun", "it imports torch.distributed"),
        ("import pytorch_lightning as pl", "torchrun", "it imports pytorch_lightning"),
        ("from accelerate import Accelerator", "torchrun", "it imports accelerate"),
        ("import deepspeed", "torchrun", "it imports deepspeed"),
        ("import torch\nfrom .lightning import x", "plain", "it imports no library for several processes"),
        ("# import horovod\nimport lightningcss", "plain", "it imports no library for several processes"),
    ],
)
def test_script_when_read_is_started_as_its_imports_suggest(source: str, launcher: str, reason: str) -> None:
    choice = launcher_of_script(source.encode())
    assert choice is not None
    assert (choice.launcher, choice.reason) == (launcher, reason)


@pytest.mark.parametrize("source", [b"print 'old'", b"\0", b"(" * 100_000, b"\xff\xfe", b"-" * 200_000 + b"1"])
def test_script_when_it_is_no_python_leaves_the_launcher_unknown(source: bytes) -> None:
    assert launcher_of_script(source) is None


@given(st.binary(max_size=200))
def test_script_whatever_it_holds_never_raises(source: bytes) -> None:
    choice = launcher_of_script(source)
    assert choice is None or choice.reason


@pytest.mark.parametrize(
    ("command", "script"),
    [
        ("python train.py --lr 1", "train.py"),
        ("/opt/venv/bin/python3.11 -u -X dev src/train.py x.py", "src/train.py"),
        ("python -m pkg.train", "pkg/train.py"),
        ("./train.py", "./train.py"),
        ("python -c pass", ""),
        ("python -", ""),
        ("python", ""),
        ("python -m", ""),
        ("pythonista train.py", ""),
        ("accelerate launch train.py", ""),
    ],
)
def test_script_of_a_command_is_the_file_that_python_runs(command: str, script: str) -> None:
    assert script_in_command(command.split()) == script


@pytest.mark.parametrize(
    ("word", "launcher"),
    [("/usr/bin/mpirun", "mpirun"), ("horovodrun", "mpirun"), ("torchrun", "torchrun"), ("a", None)],
)
def test_command_that_begins_with_a_launcher_is_started_by_it(word: str, launcher: str | None) -> None:
    assert launcher_in_command([word, "train.py"]) == launcher


@pytest.mark.parametrize(
    ("command", "program"),
    [
        ("torchrun train.py", "train.py"),
        ("torchrun --nproc-per-node 4 --rdzv-conf a=b src/fit.py --config other.py", "src/fit.py"),
        ("torchrun -m pkg.train --lr 1", "pkg/train.py"),
        ("torchrun --no-python ./fit.sh", "./fit.sh"),
        ("mpirun -np 4 -x A=1 python3 -u train.py", "train.py"),
        ("/usr/bin/mpiexec -n 2 ./solve x", "./solve"),
        ("horovodrun -np 2 python train.py", "train.py"),
        ("accelerate launch --num_processes 2 train.py", "train.py"),
        ("env A=1 python train.py", "train.py"),
        ("bash train.sh --fast", "train.sh"),
        ("bash -c true", "bash"),
        ("sh", "sh"),
        ("torchrun", "torchrun"),
        ("mpirun hostname", "mpirun"),
        ("python train.py", "train.py"),
        ("./fit x.py", "./fit"),
        ("nvidia-smi -l 1", "nvidia-smi"),
    ],
)
def test_program_of_a_command_is_what_the_job_is_named_after(command: str, program: str) -> None:
    assert program_in_command(command.split()) == program
