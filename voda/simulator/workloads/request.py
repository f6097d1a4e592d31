"""The options of a workload, beyond its name."""

import re
from pathlib import Path

from msgspec import Struct

from voda.domain.errors import InvalidInput
from voda.domain.gpus import Gpus
from voda.domain.node import Node


class WorkloadOptions(Struct, frozen=True, kw_only=True):
    """Options of windows and of generated workloads; the others have none."""

    begins: str = ""
    """Philly: first submission, a day or an instant of the trace's own clock; "" = as the trace."""
    ends: str = ""
    """Philly: submissions before this day or instant; "" = as the trace."""
    jobs: int = 0
    """Philly: the first so many of the window, 0 = all. Poisson: so many, 0 = 200."""
    rate_per_h: float = 0.0
    """Poisson: submissions per hour; 0 = as many as `load` needs."""
    load: float = 0.7
    """Poisson: mean demand of GPU time as a share of the capacity."""


class WorkloadRequest(Struct, frozen=True, kw_only=True):
    data: Path | None = None
    nodes: tuple[Node, ...] | None = None
    seed: int = 0
    options: WorkloadOptions = WorkloadOptions()


MOST_NODES = 100_000
MOST_GPUS = 1_024
"""On one node."""
_PART = re.compile(r"(\d{1,6})x(\d{1,4})", re.ASCII)


def parse_nodes(text: str) -> tuple[Node, ...]:
    """Return the nodes node-01, node-02, ... of parts "<nodes>x<GPUs on each>", joined by commas.

    Raises:
        InvalidInput: it has another format, or too many nodes.
    """
    gpus: list[int] = []
    for part in text.split(","):
        match = _PART.fullmatch(part.strip())
        if match is None or not (1 <= int(match[1]) <= MOST_NODES and 1 <= int(match[2]) <= MOST_GPUS):
            raise InvalidInput(
                f"nodes {text[:60]!r}: {part.strip()[:20]!r} is not <nodes>x<GPUs on each>, such as 16x4 or 2x8,4x4"
                f" (at most {MOST_NODES} nodes of {MOST_GPUS} GPUs)"
            )
        gpus += [int(match[2])] * int(match[1])
    if len(gpus) > MOST_NODES:
        raise InvalidInput(f"nodes {text[:60]!r}: {len(gpus)} nodes, expected at most {MOST_NODES}")
    width = max(2, len(str(len(gpus))))
    return tuple(Node(name=f"node-{number:0{width}}", gpus=Gpus(each)) for number, each in enumerate(gpus, start=1))


def total_gpus(nodes: tuple[Node, ...]) -> int:
    """Return the GPUs of all nodes."""
    return sum(node.gpus for node in nodes)
