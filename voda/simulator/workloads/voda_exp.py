"""The experiment of vodascheduler: 24 jobs on 3 nodes of 4 GPUs, July 2021.

Rule: the figures live in voda-exp-run-1.json beside this module; benchmarks/fidelity_voda.py derives them.
"""

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from voda.domain.job import JobSpec
from voda.simulator.workload import Arrival, Costs, SpeedupProfile, Workload
from voda.simulator.workloads.request import WorkloadRequest, parse_nodes

_FILE = Path(__file__).parent / "voda-exp-run-1.json"


class ReplicaBounds(Struct, frozen=True):
    requested: int
    min: int
    max: int


class Experiment(Struct, frozen=True, forbid_unknown_fields=True):
    source: str
    begins_at: datetime
    nodes: str
    bounds: ReplicaBounds
    costs: Costs
    models: Mapping[str, SpeedupProfile]
    """Neural networks as measured, without costs."""
    arrivals: tuple[tuple[float, str], ...]


def read_experiment() -> Experiment:
    """Return the figures in the package."""
    return msgspec.json.decode(_FILE.read_bytes(), type=Experiment)


def load(variant: str, request: WorkloadRequest) -> Workload:
    """Return the experiment as a workload; see the catalogue."""
    experiment = read_experiment()
    profiles = {name: replace(model, costs=experiment.costs) for name, model in experiment.models.items()}
    arrivals = tuple(
        Arrival(
            spec=_spec(f"{name}-{number:02}", experiment.bounds, profiles[name].epochs),
            submitted_s=submitted_s,
            profile=profiles[name],
        )
        for number, (submitted_s, name) in enumerate(experiment.arrivals, start=1)
    )
    return Workload(
        name=f"voda-exp/{variant}",
        source=experiment.source,
        arrivals=arrivals,
        nodes=request.nodes or parse_nodes(experiment.nodes),
        begins_at=experiment.begins_at.timestamp(),
    )


def _spec(job_id: str, bounds: ReplicaBounds, epochs: int) -> JobSpec:
    return JobSpec(
        job_id=job_id,
        name=job_id,
        requested_replicas=bounds.requested,
        min_replicas=bounds.min,
        max_replicas=bounds.max,
        epochs=epochs,
    )
