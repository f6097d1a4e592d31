"""Drawn jobs of virtual clusters that keep their cells busy, for tests of sharing."""

import random
from collections.abc import Mapping, Sequence

from voda.domain.cells import CellsSpec, QuotaSpec, VirtualClusterSpec
from voda.domain.job import JobSpec
from voda.simulator.virtual_clusters.modes import SharedWorkload, shared_workload
from voda.simulator.workload import Arrival, Costs, SpeedupProfile, Workload, speedup_law
from voda.simulator.workloads.request import parse_nodes

NODE_GPUS = 4


def some_cells(nodes: Mapping[str, int]) -> CellsSpec:
    """Return virtual clusters of so many nodes."""
    return CellsSpec(
        virtual_clusters={
            name: VirtualClusterSpec(virtual_cells=(QuotaSpec(cell_type="node", cell_number=number),))
            for name, number in nodes.items()
        }
    )


def a_shared(arrivals: Sequence[Arrival], nodes: Mapping[str, int], node_gpus: int = NODE_GPUS) -> SharedWorkload:
    """Return jobs on a cluster that consists of their virtual clusters' nodes."""
    parsed = parse_nodes(f"{sum(nodes.values())}x{node_gpus}")
    workload = Workload(name="drawn", source="test", arrivals=tuple(arrivals), nodes=parsed)
    return shared_workload(workload, some_cells(nodes))


def an_arrival(  # noqa: PLR0913 - what a job is
    job_id: str, cluster: str, at_s: float, *, gpus: int, runs_s: float, most: int = 0
) -> Arrival:
    """Return a job that runs so long on the GPUs that it asks for; it shares its history within its virtual cluster."""
    speedup = speedup_law(0.05, 0.0, max(gpus, most))
    profile = SpeedupProfile(
        epochs=4,
        work_s=runs_s * speedup[gpus],
        speedup=speedup,
        costs=Costs(start_s=30.0, resize_s=30.0, migrate_s=30.0),
    )
    most, category = max(gpus, most), f"{cluster}-{gpus}"
    spec = JobSpec(job_id=job_id, requested_replicas=gpus, max_replicas=most, epochs=4, category=category)
    return Arrival(spec=spec, submitted_s=at_s, profile=profile, virtual_cluster=cluster)


def drawn(seed: int, jobs: int, nodes: Mapping[str, int]) -> SharedWorkload:
    """Return jobs of 1 to 8 GPUs that keep the cluster busy, one virtual cluster now and then more than others."""
    rng, at_s, arrivals = random.Random(seed), 0.0, []
    for number in range(jobs):
        cluster = rng.choice(list(nodes))
        gpus = rng.choice([size for size in (1, 1, 1, 2, 2, 4, 8) if size <= nodes[cluster] * NODE_GPUS])
        at_s += rng.expovariate(sum(nodes.values()) * NODE_GPUS / 6000.0)
        runs_s = rng.choice((100.0, 300.0, 1000.0, 3000.0, 8000.0)) * rng.uniform(0.5, 1.5)
        arrivals.append(an_arrival(f"job-{number}", cluster, round(at_s, 3), gpus=gpus, runs_s=runs_s, most=2 * gpus))
    return a_shared(arrivals, nodes)
