"""At how many workers a program runs whose elastic section of a DeepSpeed configuration says the batch sizes.

Source: `_get_compatible_gpus_v01` of deepspeed/elasticity/elasticity.py in 0.19.7, whose answers these are; 0.19.8
removed it and refuses the section. A GPU count fits a batch if it divides batch / micro batch for one of the micro
batches; of the candidates that batch counts that the most GPU counts fit, of equals the largest (or smallest) one.
"""

import json
import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from voda.domain.errors import InvalidInput
from voda.domain.job import MOST_REPLICAS
from voda.domain.sizes import JobSizes
from voda.text import counted

REMOVED: Final = "DeepSpeed 0.19.8 and later refuse the elastic section: the program needs 0.19.7 or an older one"
_HIGHLY_COMPOSITE: Final = (
    *(1, 2, 4, 6, 12, 24, 36, 48, 60, 120, 180, 240, 360, 720, 840, 1260, 1680, 2520, 5040, 7560, 10080, 15120, 20160),
    *(25200, 27720, 45360, 50400, 55440, 83160, 110880, 166320, 221760, 277200, 332640, 498960, 554400, 665280, 720720),
)
"""As DeepSpeed lists them: no batch is more than the last one times its base."""
_MOST_BYTES: Final = 1_000_000
_MOST_BATCH: Final = 100_000_000
_MOST_MICRO_BATCHES: Final = 32
_MOST_GPUS: Final = 1_000_000
_DEFAULT_MOST_GPUS: Final = 10_000


class ElasticSection(Struct, frozen=True, kw_only=True):
    """What the section says of batches and GPUs."""

    most_batch: int
    micro_batches: tuple[int, ...]
    least_gpus: int
    most_gpus: int
    prefers_larger: bool


def sizes_of_config(file: Path, processes: int) -> JobSizes:
    """Return with how many workers of so many processes (0 counts as 1) the program of a configuration runs.

    Raises:
        InvalidInput: the file cannot be read, has no elastic section of version 0.1, or fits no such worker.
    """
    section, processes = elastic_section(_config_of(file), str(file)), max(processes, 1)
    counts = gpu_counts(section)
    sizes = [count // processes for count in counts if count % processes == 0]
    if not (sizes := [size for size in sizes if size <= MOST_REPLICAS]):
        found = f"{counts[0]} to {counts[-1]}" if counts else "none"
        raise InvalidInput(
            f"{file}: of the GPU counts that its elastic section fits ({found}) none makes 1 to {MOST_REPLICAS:,}"
            f" workers of {counted(processes, 'GPU')}: change micro_batch_sizes, min_gpus, max_gpus or the GPUs of a"
            " worker"
        )
    return JobSizes.of(sizes)


def elastic_section(config: object, source: str) -> ElasticSection:
    """Return the elastic section of a configuration; raises InvalidInput, which names the source."""
    section = config.get("elasticity") if isinstance(config, Mapping) else None
    if not isinstance(section, Mapping):
        raise InvalidInput(
            f"{source}: expected DeepSpeed's configuration with a section elasticity, got none: give the"
            " sizes by --workers 1,2,4 (in a manifest: voda.dev/sizes)"
        )
    if (enabled := section.get("enabled", False)) is not True:
        shown = json.dumps(enabled) if enabled is None or enabled is False else repr(enabled)[:40]
        raise InvalidInput(f"{source}: elasticity.enabled: expected true, got {shown}")
    version = section.get("version", 0.2)
    if str(version) != "0.1":
        shown = repr(version)[:40] if "version" in section else "none, which DeepSpeed takes for 0.2"
        raise InvalidInput(f"{source}: elasticity.version: expected 0.1, the one that counts GPUs alone, got {shown}")
    if (parallel := section.get("model_parallel_size", 1)) != 1:
        raise InvalidInput(f"{source}: elasticity.model_parallel_size: expected 1 in version 0.1, got {parallel!r:.40}")
    most_batch = _number(section, "max_train_batch_size", None, _MOST_BATCH, source)
    least = _number(section, "min_gpus", 1, _MOST_GPUS, source)
    most = _number(section, "max_gpus", _DEFAULT_MOST_GPUS, _MOST_GPUS, source)
    if least > most:
        raise InvalidInput(f"{source}: elasticity.max_gpus: expected min_gpus, {least}, or more, got {most}")
    return ElasticSection(
        most_batch=most_batch,
        micro_batches=_micro_batches(section, most_batch, source),
        least_gpus=least,
        most_gpus=most,
        prefers_larger=bool(section.get("prefer_larger_batch", True)),
    )


def gpu_counts(section: ElasticSection) -> Sequence[int]:
    """Return the GPU counts at which DeepSpeed lets the program run, ascending; there may be none."""
    bases = {*section.micro_batches, math.lcm(*section.micro_batches)}
    batches = {
        base * _HIGHLY_COMPOSITE[bisect_right(_HIGHLY_COMPOSITE, section.most_batch // base) - 1]
        for base in bases
        if base <= section.most_batch
    }
    sign = 1 if section.prefers_larger else -1
    fitting = {batch: _fitting(batch, section) for batch in batches}
    best = max(batches, key=lambda batch: (len(fitting[batch]), sign * batch))
    return sorted(fitting[best])


def _fitting(batch: int, section: ElasticSection) -> set[int]:
    """Return the GPU counts that divide the batch into whole micro batches of one size."""
    counts = set[int]()
    for micro in section.micro_batches:
        if batch % micro == 0:
            whole = batch // micro
            low = [number for number in range(1, math.isqrt(whole) + 1) if whole % number == 0]
            counts.update(low, (whole // number for number in low))
    return {count for count in counts if section.least_gpus <= count <= section.most_gpus}


def _config_of(file: Path) -> object:
    try:
        with file.open("rb") as opened:
            text = opened.read(_MOST_BYTES + 1)
    except OSError as error:
        raise InvalidInput(f"{file} cannot be read: {error.strerror}") from error
    if len(text) > _MOST_BYTES:
        raise InvalidInput(f"{file}: expected DeepSpeed's configuration of up to {_MOST_BYTES:,} bytes, got more")
    try:
        found: object = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"{file}: expected DeepSpeed's configuration, which is JSON: {error!s:.200}") from error
    return found


def _number(section: Mapping[str, Any], name: str, default: int | None, most: int, source: str) -> int:
    value = section.get(name, default)
    if type(value) is not int or not 1 <= value <= most:
        shown = repr(value)[:40] if name in section else "none"
        raise InvalidInput(f"{source}: elasticity.{name}: expected a whole number from 1 to {most:,}, got {shown}")
    return value


def _micro_batches(section: Mapping[str, Any], most: int, source: str) -> tuple[int, ...]:
    found = section.get("micro_batch_sizes")
    is_list = isinstance(found, list) and 1 <= len(found) <= _MOST_MICRO_BATCHES
    if not is_list or not all(type(each) is int and 1 <= each <= most for each in found or ()):
        raise InvalidInput(
            f"{source}: elasticity.micro_batch_sizes: expected 1 to {_MOST_MICRO_BATCHES} whole numbers from 1 to"
            f" max_train_batch_size, {most}, got {found!r:.60}"
        )
    return tuple(found or ())
