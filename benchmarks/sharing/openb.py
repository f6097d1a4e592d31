"""openb: a production cluster of Alibaba with 6,212 GPUs, its pods, and the order in which FGD's authors let them come.

Weng et al., Beware of Fragmentation, USENIX ATC 2023. Rule: a list and a seed say everything. Orders of the published
seeds are read; those of other seeds are drawn.
"""

import csv
import lzma
from collections.abc import Sequence
from itertools import cycle
from pathlib import Path
from typing import Final

from msgspec import Struct

from voda.domain.errors import InvalidInput
from voda.domain.gpus import MILLI_PER_DEVICE, GpuDevice, GpuRequest, Gpus
from voda.domain.rng import rng_at
from voda.sharing.rating.nodes import GpuNode
from voda.sharing.rating.pod import PodRequest
from voda.simulator.data import DataSet, find_folder, intact

OPENB = DataSet(
    name="openb",
    folders=("openb",),
    marker=("nodes.csv",),
    origin="github.com/hkust-adsl/kubernetes-scheduler-simulator, path data/csv/ (Apache-2.0; the trace is Alibaba's),"
    " with the orders of its published runs, see docs/shared-gpus.md",
)

LISTS: Final = ("default", "gpushare40", "multigpu50", "gpuspec33")
PUBLISHED_SEEDS: Final = range(42, 52)
_MOST_LOAD: Final = 1.3
_ORDERED_AS: Final = {"gpuspec33": "default"}
"""Lists whose pods come in the order of another's."""


class Arrivals(Struct, frozen=True, kw_only=True):
    """One run's order: the places of pods in the list, and the nodes, those first that win among equals."""

    pods: Sequence[int]
    nodes: Sequence[GpuNode]


class OpenbList(Struct, frozen=True, kw_only=True):
    """A list of pods and the cluster that they come to."""

    name: str
    pods: Sequence[PodRequest]
    nodes: Sequence[GpuNode]
    folder: Path

    @property
    def capacity_milli(self) -> int:
        return sum(len(node.devices) for node in self.nodes) * MILLI_PER_DEVICE

    def arrivals(self, seed: int) -> Arrivals:
        """Return the order of a seed: that of the published runs if it is one of theirs."""
        if seed in PUBLISHED_SEEDS:
            name = _ORDERED_AS.get(self.name, self.name)
            pods, ranks = (_line(self.folder / f"{what}-{name}.csv.xz", seed) for what in ("arrivals", "rank"))
            if len(ranks) != len(self.nodes) or max(pods) >= len(self.pods):
                raise InvalidInput(f"{self.folder}: the orders of {name} do not belong to its nodes and pods")
        else:
            pods, ranks = self._drawn(seed)
        order = sorted(range(len(ranks)), key=ranks.__getitem__)
        return Arrivals(pods=pods, nodes=[self.nodes[place] for place in order])

    def _drawn(self, seed: int) -> tuple[Sequence[int], Sequence[int]]:
        """Return all pods in a random order, then the same pods again, up to the load of the published runs."""
        rng = rng_at(seed, f"openb/{self.name}")
        pods, ranks = list(range(len(self.pods))), list(range(len(self.nodes)))
        rng.shuffle(pods)
        rng.shuffle(ranks)
        arrived, most, chosen = 0, _MOST_LOAD * self.capacity_milli, list[int]()
        for place in cycle(pods):
            if arrived >= most:
                break
            chosen.append(place)
            arrived += self.pods[place].total_milli
        return chosen, ranks


def load_list(name: str, data: Path | None = None) -> OpenbList:
    """Return a list of pods by name.

    Raises:
        InvalidInput: there is no such list, or a file is damaged.
        DataNotFound: the data set is not on this machine.
    """
    if name not in LISTS:
        raise InvalidInput(f"openb has no list {name[:40]!r}: expected {', '.join(LISTS)}")
    folder = find_folder(OPENB, data)
    with intact(folder / "nodes.csv", OPENB):
        nodes = [_node(row) for row in _rows(folder / "nodes.csv")]
    with intact(folder / f"pods-{name}.csv", OPENB):
        pods = [_pod(row) for row in _rows(folder / f"pods-{name}.csv")]
    if not any(pod.total_milli for pod in pods) or not nodes:
        raise InvalidInput(f"{folder}: no node, or no pod of {name} that asks for GPUs")
    return OpenbList(name=name, pods=pods, nodes=nodes, folder=folder)


def _rows(path: Path) -> Sequence[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def _node(row: dict[str, str]) -> GpuNode:
    return GpuNode(
        name=row["sn"],
        cpu_milli=int(row["cpu_milli"]),
        memory_mib=int(row["memory_mib"]),
        model=row["model"],
        # The trace does not say how much memory devices have.
        devices=(GpuDevice(),) * int(row["gpu"]),
    )


def _pod(row: dict[str, str]) -> PodRequest:
    devices, milli = int(row["num_gpu"]), int(row["gpu_milli"])
    asked = GpuRequest(milli=milli) if devices == 1 and milli < MILLI_PER_DEVICE else GpuRequest(devices=Gpus(devices))
    models = row.get("gpu_spec") or ""
    return PodRequest(
        cpu_milli=int(row["cpu_milli"]),
        memory_mib=int(row["memory_mib"]),
        containers=(asked,) if devices else (),
        models=tuple(models.split("|")) if models else (),
    )


def _line(path: Path, seed: int) -> Sequence[int]:
    with intact(path, OPENB), lzma.open(path, "rt", encoding="ascii") as file:
        for line in file:
            first, _, rest = line.partition(",")
            if first == str(seed):
                return [int(number) for number in rest.split(",")]
    raise InvalidInput(f"{path}: there is no line of seed {seed}")
