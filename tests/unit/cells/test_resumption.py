"""Gangs that come back in batches: the book is the one that they have when each comes alone."""

from collections.abc import Sequence
from random import Random

import pytest

from voda.cells.book import CellBook
from voda.cells.gangs import OPPORTUNISTIC, Gang, GangRequest, WorkerCells, batches
from voda.cells.pool_cells import open_pool
from voda.cells.recovery import occupy
from voda.cells.resumption import KeptCells, resume
from voda.domain.cells import CellsSpec, QuotaSpec, VirtualClusterSpec
from voda.domain.gpus import Gpus
from voda.domain.node import Node
from voda.domain.rng import rng_at

GPUS = 4
QUOTAS = (
    ("node", {"a": {"node": 2}, "b": {"node": 3}}),
    ("node", {"a": {"node": 2}, "b": {"node.gpu": 3}}),
    ("rack", {"a": {"rack.node": 2}, "b": {"rack.node": 2}}),
    ("rack", {"a": {"rack.node": 2}, "b": {"rack": 1}}),
    ("rack", {"a": {"rack.node": 3}, "b": {"rack.node": 3}}),
)


def a_book(chain: str, quotas: dict[str, dict[str, int]]) -> CellBook:
    racks = [{"voda.dev/rack": f"r{index // 2}"} if chain == "rack" else {} for index in range(6)]
    nodes = [Node(name=f"n{index}", gpus=Gpus(GPUS), labels=racks[index]) for index in range(6)]
    clusters = {
        name: VirtualClusterSpec(
            virtual_cells=tuple(QuotaSpec(cell_type=path, cell_number=number) for path, number in cells.items())
        )
        for name, cells in quotas.items()
    }
    return open_pool(CellsSpec(virtual_clusters=clusters), nodes)


def some_jobs(rng: Random, book: CellBook, chain: str) -> list[list[Gang]]:
    """Draw jobs that share the leafs of all nodes; mostly each node is one virtual cluster's, as they are owed."""
    leafs = {node: list(each) for node, each in book.topology.leafs_on.items()}
    owners = dict(zip(leafs, rng.sample(("a", "a", "b", "b", "default", "default"), len(leafs)), strict=True))
    mixing, others = rng.choice((0.0, 0.0, 0.1)), rng.choice(((), (), ("gpu",)))
    jobs = []
    for number in range(rng.randint(1, 14)):
        cluster = rng.choice(("a", "b", "default"))
        quota, priority = rng.choice(("node", "node", "node", "", *others)), rng.choice((0, 0, 5))
        gangs = []
        for index in range(rng.randint(1, 4)):
            size = rng.choice((1, 1, 2))
            there = [node for node, free in leafs.items() if len(free) >= size and owners[node] == cluster]
            if rng.random() < mixing:
                there = [node for node, free in leafs.items() if len(free) >= size]
            if not there:
                continue
            node = rng.choice(there)
            mine = tuple(leafs[node].pop(rng.randrange(len(leafs[node]))) for _ in range(size))
            devices = tuple(book.topology.devices[leaf] for leaf in mine)
            cells = WorkerCells(node=node, devices=devices, chain=chain, quota=quota)
            request = GangRequest(
                name=f"j{number}#{index}",
                virtual_cluster=cluster,
                members=((1, size),),
                priority=priority if quota else OPPORTUNISTIC,
                yields=True,
            )
            gangs.append(Gang(request=request, placement=(cells,), leafs=mine))
        if gangs:
            jobs.append(gangs)
    return sorted(jobs, key=lambda gangs: not gangs[0].placement[0].quota)


def alone_in(unused: CellBook, jobs: Sequence[Sequence[Gang]]) -> tuple[CellBook, list[str]]:
    """Return the book of gangs that come one by one, and those that lose their guarantee."""
    book, lost = unused.copy(), list[str]()
    for gang in (gang for gangs in jobs for gang in gangs):
        lost += occupy(book, gang.request, gang.placement)
    return book, lost


@pytest.mark.parametrize("number", range(len(QUOTAS)))
def test_book_when_gangs_come_in_batches_is_the_one_of_gangs_that_come_alone(number: int) -> None:
    chain, quotas = QUOTAS[number]
    unused = a_book(chain, quotas)
    for seed in range(120):
        rng = rng_at(seed, f"resumption-{number}")
        jobs = some_jobs(rng, unused, chain)
        come = [(gangs, batches(unused.topology, gangs)) for gangs in jobs]
        kept = KeptCells()
        # Of the jobs that were there before, some have gone and others have come.
        for share in (1.0, 1.0, 0.7, 0.9, 0.5, 0.9):
            there = [each for each in come if rng.random() < share]
            alone, lost = alone_in(unused, [gangs for gangs, _ in there])
            of_all = [batch for _, of_job in there for batch in of_job]
            guaranteed, idle = [each for each in of_all if each.quota], [each for each in of_all if not each.quota]
            together, downgraded = resume(unused, guaranteed, idle, kept)
            assert together == alone
            assert list(together.gangs) == list(alone.gangs)
            assert list(downgraded) == lost
    assert unused == a_book(chain, quotas), "the book of before changed"
