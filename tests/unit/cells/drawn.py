"""Drawn clusters whose quotas fit, and requests of gangs."""

from collections.abc import Mapping
from functools import cache
from random import Random
from typing import Final, NamedTuple

from tests.unit.cells.clusters import a_cluster, a_gang
from voda.cells.book import CellBook, open_book
from voda.cells.gangs import OPPORTUNISTIC, GangRequest
from voda.cells.structure.quotas import build_quotas
from voda.cells.structure.topology import Topology, build_topology
from voda.domain.errors import InvalidInput

CLUSTERS: Final = ("a", "b", "c")
QUOTAS: Final = ("rack", "rack.node", "rack.node.switch", "rack.node.switch.gpu", "box", "box.gpu")
MEMBERS: Final = (((1, 1),), ((1, 2),), ((1, 4),), ((2, 4),), ((3, 2),), ((2, 1), (1, 2)), ((1, 4), (2, 2)), ((4, 1),))


class Cluster(NamedTuple):
    """What a_cluster takes."""

    racks: int
    boxes: int
    pins: str
    quotas: Mapping[str, Mapping[str, int]]

    def book(self) -> CellBook:
        """Return its book, or raise where the quotas do not fit."""
        spec = a_cluster(racks=self.racks, boxes=self.boxes, quotas=self.quotas, pins=self.pins)
        topology = _topology(self.racks, self.boxes, bool(self.pins))
        return open_book(topology, build_quotas(spec.virtual_clusters, topology))


@cache
def _topology(racks: int, boxes: int, is_pinned: bool) -> Topology:
    """Return one of the few topologies that are drawn, over and over; no book changes its topology."""
    return build_topology(a_cluster(racks=racks, boxes=boxes, pins="a" if is_pinned else "").physical_cluster)


def drawn_cluster(random: Random) -> Cluster:
    """Return a cluster whose quotas fit: each is added if it still does."""
    cluster = Cluster(random.randint(1, 3), random.randint(0, 2), random.choice(("", "", "a")), {})
    fitting: dict[str, dict[str, int]] = {name: {} for name in CLUSTERS}
    for _ in range(random.randint(0, 6)):
        name, kind, number = random.choice(CLUSTERS), random.choice(QUOTAS), random.randint(1, 2)
        trial = {each: dict(of_each) for each, of_each in fitting.items()} | {name: {**fitting[name], kind: number}}
        try:
            cluster._replace(quotas=trial).book()
        except InvalidInput:
            continue
        fitting = trial
    return cluster._replace(quotas=fitting)


def drawn_request(random: Random) -> GangRequest:
    """Return a gang's request; most are guaranteed."""
    cluster = random.choice(CLUSTERS)
    pin = "pin" if cluster == "a" and random.randrange(5) == 0 else ""
    priority = random.choice((0, 0, 1, 2) if pin else (OPPORTUNISTIC, OPPORTUNISTIC, 0, 0, 1, 2))
    return a_gang(
        f"gang-{random.randrange(10_000)}",
        cluster,
        *random.choice(MEMBERS),
        priority=priority,
        pin=pin,
        yields=random.choice((False, True)),
    )
