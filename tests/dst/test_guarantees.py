"""The checker notices guarantees that are not kept, and nothing else."""

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from tests.builders import Log
from tests.dst.invariants.broken import Broken
from tests.dst.invariants.guarantees import Guarantees
from tests.dst.invariants.plans import Plans
from voda.cells.pool_cells import declared_cells
from voda.domain.cells import CellsSpec, QuotaSpec, VirtualClusterSpec
from voda.domain.gpus import Gpus
from voda.domain.job import JobSpec
from voda.domain.node import Node
from voda.domain.reasons.nodes import Said
from voda.events.types import (
    AnyFact,
    JobBackedOff,
    JobSubmitted,
    NodeChanged,
    NodeJoined,
    PlanAdopted,
    VirtualClustersApplied,
)

NODES = (Node(name="n1", gpus=Gpus(4)), Node(name="n2", gpus=Gpus(2)))


def quota(kind: str, number: int) -> VirtualClusterSpec:
    return VirtualClusterSpec(virtual_cells=(QuotaSpec(cell_type=kind, cell_number=number),))


CLUSTERS = {"red": quota("node-4", 1), "blue": quota("node-2.gpu", 2)}
BEGIN: Sequence[AnyFact] = (
    *(NodeJoined(node=node) for node in NODES),
    VirtualClustersApplied(pool="default", cells=declared_cells(CellsSpec(virtual_clusters=CLUSTERS), NODES)),
    *(
        JobSubmitted(spec=JobSpec(job_id=name, virtual_cluster=cluster, min_replicas=2, max_replicas=4))
        for name, cluster in (("r1", "red"), ("r2", "red"), ("b1", "blue"))
    ),
)
"""Five facts and a sixth: the positions of what follows begin at 7."""


def a_plan(number: int, based_on: int, **jobs: tuple[str, tuple[int, ...], str]) -> PlanAdopted:
    """Return a plan; job -> node, a device for each worker, and the type of quota cell that guarantees them, if any."""
    return PlanAdopted(
        pool="default",
        number=number,
        based_on=based_on,
        policy="fifo",
        placer="steady",
        cause="tick",
        placed={job_id: (node,) * len(devices) for job_id, (node, devices, _) in jobs.items()},
        devices={job_id: tuple((device,) for device in devices) for job_id, (_, devices, _) in jobs.items()},
        guaranteed={job_id: (kind,) * len(devices) for job_id, (_, devices, kind) in jobs.items() if kind},
    )


def broken(*facts: AnyFact) -> str:
    """Return the rule that the facts after `BEGIN` break; empty: none."""
    log, plans = Log(), Plans()
    guarantees = Guarantees(plans)
    try:
        for at, fact in enumerate((*BEGIN, *facts)):
            event = log.add(fact, at=float(at))
            plans.see(event)
            guarantees.see([event])
    except Broken as error:
        return error.rule
    return ""


SERVED = a_plan(1, 6, r1=("n1", (0, 1), "node-4"), r2=("n1", (2, 3), "node-4"), b1=("n2", (0, 1), "gpu"))


def test_guarantees_when_every_job_has_its_cells_are_kept() -> None:
    assert broken(SERVED) == ""


def test_guarantees_when_a_device_has_two_workers_it_is_noticed() -> None:
    assert broken(a_plan(1, 6, r1=("n1", (0, 1), "node-4"), r2=("n1", (1, 2), "node-4"))) == "cells"


def test_guarantees_when_more_is_guaranteed_than_the_quota_has_it_is_noticed() -> None:
    assert broken(replace(SERVED, guaranteed={**SERVED.guaranteed, "b1": ("node-2", "node-2")})) == "cells"


def test_guarantees_when_a_job_waits_for_whom_its_virtual_cluster_has_cells_it_is_noticed() -> None:
    waits = a_plan(1, 6, r1=("n1", (0, 1), "node-4"), b1=("n2", (0, 1), "gpu"))
    assert broken(waits) == "guarantee"
    lent = a_plan(1, 6, r1=("n1", (0, 1), "node-4"), b1=("n1", (2, 3), ""))
    assert broken(lent) == "guarantee"


@pytest.mark.parametrize("name", ["is_ready", "is_schedulable"])
def test_guarantees_when_the_node_is_not_healthy_promise_nothing(name: str) -> None:
    change = NodeChanged(node=replace(NODES[0], **{name: False}))
    assert broken(change, a_plan(1, 7, b1=("n2", (0, 1), "gpu"))) == ""


def test_guarantees_when_a_job_backs_off_promise_it_nothing() -> None:
    late = JobBackedOff(
        pool="default", job_id="r2", at_work=0, planned=2, since=0.0, reason=Said(text="no image"), retry_after_s=60.0
    )
    assert broken(late, a_plan(1, 7, r1=("n1", (0, 1), "node-4"), b1=("n2", (0, 1), "gpu"))) == ""


def test_guarantees_when_a_cell_goes_to_another_virtual_cluster_it_is_noticed() -> None:
    taken = replace(a_plan(2, 7, b1=("n1", (2, 3), "gpu")), released=("r2",))
    assert broken(SERVED, replace(taken, guaranteed={"b1": ("gpu", "gpu")})) in ("cells", "guarantee")
