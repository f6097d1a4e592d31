"""NVIDIA's Multi-Process Service (MPS) on this machine: whether its daemon runs, and the variables by which it keeps a
program to its part of a GPU.

Rule: a folder that another user may have made says nothing. See NVIDIA's MPS documentation, "Environment variables".
"""

import os
import stat
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from voda.domain.gpus import GpuRequest
from voda.process_table import command_name
from voda.untrusted_files import UntrustedFolder

_FOLDER: Final = "CUDA_MPS_PIPE_DIRECTORY"
_USUAL_FOLDER: Final = "/tmp/nvidia-mps"
_PID_FILE: Final = "nvidia-cuda-mps-control.pid"
_COMMAND: Final = "nvidia-cuda-mps-control"[:15]
"""As the kernel keeps it."""
_PID_BYTES: Final = 32
_MILLI_PER_PERCENT: Final = 10


def mps_folder(environment: Mapping[str, str], processes: Path = Path("/proc")) -> str:
    """Return the folder of the pipes of an MPS daemon that runs as root or as we do; empty: none runs."""
    folder = environment.get(_FOLDER) or _USUAL_FOLDER
    with suppress(OSError, ValueError):
        found = os.stat(folder, follow_symlinks=False)
        if stat.S_ISDIR(found.st_mode) and found.st_uid in (0, os.geteuid()):
            files = UntrustedFolder(Path(folder), uid=found.st_uid)
            if command_name(int(files.read(_PID_FILE, _PID_BYTES)), processes) == _COMMAND:
                return folder
    return ""


def share_variables(request: GpuRequest, folder: str) -> Mapping[str, str]:
    """Return the variables of a program with a part of the one GPU that it sees.

    Args:
        request: the part.
        folder: of the pipes of MPS; empty: nothing keeps the program to its part, which it learns all the same.
    """
    variables = {"VODA_GPU_MILLI": str(request.milli), "VODA_GPU_MEMORY_MIB": str(request.memory_mib)}
    if not folder:
        return variables
    variables[_FOLDER] = folder
    if request.milli:
        variables["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] = f"{request.milli / _MILLI_PER_PERCENT:g}"
    if request.memory_mib:
        variables["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] = f"0={request.memory_mib}M"
    return variables
