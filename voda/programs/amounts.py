"""How much a program may have, and for how long, as a user writes it; what is odd is refused by its option."""

import math
import re
from typing import Final

from voda.domain.errors import InvalidInput
from voda.programs.program_manifest import MILLI_PER_CORE
from voda.text import seconds_of

_GPU_MEMORY: Final = re.compile(r"([0-9]{1,9})(Mi|Gi|Ti)B?")
_MOST_MILLI: Final = 990
_MILLI_PER_GPU: Final = 1_000
_MOST_GPU_MIB: Final = 16 << 20
_MEMORY: Final = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,3})?)([KMGT]i?)B?")
_MIB: Final = {"Ki": 1 / 1024, "Mi": 1, "Gi": 1 << 10, "Ti": 1 << 20}
_MB: Final = {"K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_MOST_MIB: Final = 1 << 30
_CPUS: Final = re.compile(r"([0-9]{1,6}(?:\.[0-9]{1,3})?)")
_MOST_CPUS: Final = 100_000
_LEAST_CPUS: Final = 0.01
_MOST_RETRIES: Final = 1_000
MOST_NICE: Final = 19


def gpu_milli_of(text: str) -> int:
    """Return the thousandths of a GPU's compute that a text says."""
    milli = int(text) if re.fullmatch(r"[0-9]{1,6}", text) else 0
    if MILLI_PER_CORE <= milli <= _MOST_MILLI and milli % MILLI_PER_CORE == 0:
        return milli
    hint = "; whole GPUs are --gpus-per-worker N" if milli >= _MILLI_PER_GPU else ""
    raise InvalidInput(f"--gpu-milli: expected 10, 20, ... to 990 thousandths of a GPU, got {text[:40]!r}{hint}")


def gpu_memory_mib_of(text: str) -> int:
    """Return the MiB of a GPU's memory that a text says."""
    match = _GPU_MEMORY.fullmatch(text.strip())
    mib = int(match[1]) * {"Mi": 1, "Gi": 1 << 10, "Ti": 1 << 20}[match[2]] if match else 0
    if not 0 < mib <= _MOST_GPU_MIB:
        raise InvalidInput(f"--gpu-memory: expected memory of a GPU such as 4Gi or 500Mi, got {text[:40]!r}")
    return mib


def time_limit_s_of(text: str) -> int:
    """Return the seconds that a text says, one or more."""
    if (limit_s := math.ceil(seconds_of(text, option="--time", needs_unit=True))) < 1:
        raise InvalidInput(f"--time: expected a second or more, got {text[:40]!r}")
    return limit_s


def memory_of(text: str) -> str:
    """Return the memory of a worker as manifests have it; below 1Mi no kernel sets a limit."""
    match = _MEMORY.fullmatch(text.strip())
    number, unit = (float(match[1]), match[2]) if match else (0.0, "Mi")
    mib = number * (_MIB[unit] if unit in _MIB else _MB[unit] / (1 << 20))
    if not 1 <= mib <= _MOST_MIB:
        raise InvalidInput(f"--memory: expected memory of a worker such as 8Gi, 1Mi or more, got {text[:40]!r}")
    return f"{math.ceil(mib)}Mi" if unit not in ("Gi", "Ti") or not number.is_integer() else f"{number:.0f}{unit}"


def cpus_of(text: str) -> str:
    """Return the CPUs of a worker as manifests have them."""
    if not _CPUS.fullmatch(text.strip()) or not _LEAST_CPUS <= float(text) <= _MOST_CPUS:
        raise InvalidInput(f"--cpus: expected CPUs of a worker such as 4 or 0.5, got {text[:40]!r}")
    return f"{float(text):g}"


def retries_of(count: int) -> int:
    """Return how often a failed program is tried again."""
    return _whole("--retries", count, _MOST_RETRIES)


def nice_of(nice: int) -> int:
    """Return how much the program gives way to others for CPUs."""
    return _whole("--nice", nice, MOST_NICE)


def _whole(option: str, number: int, most: int) -> int:
    """Return a number that an option says, 0 or more."""
    if not 0 <= number <= most:
        raise InvalidInput(f"{option}: expected 0 to {most:,}, got {number}")
    return number
