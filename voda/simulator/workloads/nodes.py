"""Clusters written down in short: "16x4", or "2x8,4x4" for a mixed one."""

import re

from voda.domain.errors import InvalidInput
from voda.domain.gpus import Gpus
from voda.domain.node import Node

MOST_NODES = 100_000
MOST_GPUS = 1_024
"""On one node."""
_PART = re.compile(r"(\d{1,6})x(\d{1,4})", re.ASCII)


def parse_nodes(text: str) -> tuple[Node, ...]:
    """Return the nodes node-01, node-02, ... that `text` stands for.

    Args:
        text: parts "<nodes>x<GPUs on each>", joined by commas.

    Raises:
        InvalidInput: it says nothing of the kind, or too much.
    """
    gpus: list[int] = []
    for part in text.split(","):
        found = _PART.fullmatch(part.strip())
        if found is None or not (1 <= int(found[1]) <= MOST_NODES and 1 <= int(found[2]) <= MOST_GPUS):
            raise InvalidInput(
                f"nodes {text[:60]!r}: {part.strip()[:20]!r} is not <nodes>x<GPUs on each>, such as 16x4 or 2x8,4x4"
                f" (at most {MOST_NODES} nodes of {MOST_GPUS} GPUs)"
            )
        gpus += [int(found[2])] * int(found[1])
    if len(gpus) > MOST_NODES:
        raise InvalidInput(f"nodes {text[:60]!r}: {len(gpus)} nodes, expected at most {MOST_NODES}")
    width = max(2, len(str(len(gpus))))
    return tuple(Node(name=f"node-{number:0{width}}", gpus=Gpus(each)) for number, each in enumerate(gpus, start=1))


def total_gpus(nodes: tuple[Node, ...]) -> int:
    """Return the GPUs of all nodes."""
    return sum(node.gpus for node in nodes)
