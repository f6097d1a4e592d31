"""Whether NVIDIA's MPS runs here, and what a program with a part of a GPU is told; the daemon is made of files."""

import os
from pathlib import Path

import pytest

from tests.needs import needs
from voda.cluster.local.isolation.mps import mps_folder, share_variables
from voda.domain.gpus import GpuRequest


def a_daemon(tmp_path: Path, *, command: str = "nvidia-cuda-mps", pid: str = "71\n") -> Path:
    """Write what a daemon leaves: the file with its number, and its process; return the folder of its pipes."""
    pipes, process = tmp_path / "mps", tmp_path / "proc" / "71"
    pipes.mkdir()
    process.mkdir(parents=True)
    (pipes / "nvidia-cuda-mps-control.pid").write_text(pid)
    (process / "comm").write_text(f"{command}\n")
    return pipes


def found(tmp_path: Path, pipes: Path) -> str:
    return mps_folder({"CUDA_MPS_PIPE_DIRECTORY": str(pipes)}, tmp_path / "proc")


def test_daemon_when_it_runs_is_found_by_its_folder(tmp_path: Path) -> None:
    pipes = a_daemon(tmp_path)
    assert found(tmp_path, pipes) == str(pipes)


@pytest.mark.parametrize("fields", [{"command": "python3"}, {"pid": "72"}, {"pid": "x"}, {"pid": ""}])
def test_daemon_that_has_ended_or_is_another_process_is_none(tmp_path: Path, fields: dict[str, str]) -> None:
    assert found(tmp_path, a_daemon(tmp_path, **fields)) == ""


def test_daemon_of_a_folder_that_is_absent_a_link_or_holds_no_file_is_none(tmp_path: Path) -> None:
    assert found(tmp_path, tmp_path / "nowhere") == ""
    pipes = a_daemon(tmp_path)
    link = tmp_path / "link"
    link.symlink_to(pipes)
    assert found(tmp_path, link) == ""
    (pipes / "nvidia-cuda-mps-control.pid").unlink()
    os.mkfifo(pipes / "nvidia-cuda-mps-control.pid")
    assert found(tmp_path, pipes) == ""


@needs(os.geteuid() == 0, "only root can give a folder to another user")
def test_daemon_in_a_folder_of_another_user_is_none(tmp_path: Path) -> None:
    pipes = a_daemon(tmp_path)
    os.chown(pipes, 65_534, 65_534)
    assert found(tmp_path, pipes) == ""


def test_program_is_told_its_part_and_with_mps_kept_to_it() -> None:
    told = {"VODA_GPU_MILLI": "250", "VODA_GPU_MEMORY_MIB": "4096"}
    request = GpuRequest(milli=250, memory_mib=4_096)
    assert share_variables(request, "") == told
    assert share_variables(request, "/run/mps") == told | {
        "CUDA_MPS_PIPE_DIRECTORY": "/run/mps",
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "25",
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=4096M",
    }
    assert share_variables(GpuRequest(memory_mib=100), "/run/mps").keys() >= {"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"}
    assert "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE" not in share_variables(GpuRequest(memory_mib=100), "/run/mps")
    assert "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT" not in share_variables(GpuRequest(milli=10), "/run/mps")
