"""What jobs do on a GPU in `python -m benchmarks.gpu` and `make e2e-gpu`: look at their part, hold it, compute.

Run by a python that has torch; each writes what it saw to a file, as JSON, whole or not at all.
"""

import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

_GIB = 2**30
_SIZE = 8_192
_DEADLINE_S = 120.0


def main() -> None:
    """Do what the command line names: look FILE TRY_GIB..., hold FILE STOP or compute FILE START SECONDS."""
    work, file, *rest = sys.argv[1:]
    works: Mapping[str, Callable[..., None]] = {"look": look, "hold": hold, "compute": compute}
    works[work](Path(file), *rest)


def look(file: Path, *gibs: str) -> None:
    """Write which GPU is seen, how much of it, and whether so much of its memory can be had at once."""
    write(file, {**seen(), "has_gib": {gib: _is_had(float(gib)) for gib in gibs}})


def hold(file: Path, stop: str) -> None:
    """Compute a little again and again until a file is there; write what is seen at the start and at the end."""
    matrix = torch.ones(256, 256, device="cuda")
    write(file, seen())
    until(Path(stop), lambda: (matrix @ matrix).sum().item())
    write(file, {**seen(), "ended": True})


def compute(file: Path, start: str, seconds: str) -> None:
    """Multiply matrices for so long once a file is there, and write how many TFLOP/s that were."""
    matrix = torch.randn(_SIZE, _SIZE, device="cuda", dtype=torch.bfloat16)
    for _ in range(3):
        matrix @ matrix
    torch.cuda.synchronize()
    write(file, {"is_ready": True})
    until(Path(start), lambda: time.sleep(0.01))
    count, began = 0, time.perf_counter()
    while (took := time.perf_counter() - began) < float(seconds):
        for _ in range(10):
            matrix @ matrix
        torch.cuda.synchronize()
        count += 10
    write(file, {"is_ready": True, "tflops": 2 * _SIZE**3 * count / took / 1e12})


def until(file: Path, each: Any) -> None:
    """Do something again and again until a file is there; give up after a while, so that nothing is left behind."""
    limit = time.perf_counter() + _DEADLINE_S
    while not file.exists():
        if time.perf_counter() > limit:
            sys.exit(f"waited {_DEADLINE_S:g} s in vain for {file}")
        each()


def seen() -> dict[str, Any]:
    """Return what this process sees of GPUs, and what voda told it."""
    gpu = torch.cuda.get_device_properties(0)
    return {
        "devices": torch.cuda.device_count(),
        "processors": gpu.multi_processor_count,
        "total_gib": torch.cuda.mem_get_info()[1] / _GIB,
        "told": {name: text for name, text in os.environ.items() if name.startswith(("CUDA_", "VODA_GPU"))},  # noqa: TID251
    }


def write(file: Path, what: dict[str, Any]) -> None:
    """Write a file whole."""
    part = file.with_suffix(".part")
    part.write_text(json.dumps(what))
    part.rename(file)


def _is_had(gib: float) -> bool:
    try:
        torch.empty(int(gib * _GIB), dtype=torch.uint8, device="cuda")
    except torch.OutOfMemoryError:
        return False
    torch.cuda.empty_cache()
    return True


if __name__ == "__main__":
    main()
