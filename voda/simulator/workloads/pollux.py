"""The workloads of the Pollux paper: 160 or 320 jobs within 8 hours, on 16 nodes of 4 GPUs.

Source: Qiao et al., OSDI'21, and its artifact, workloads/workload-N.csv ("TunedJobs") and workloads-2.0/.
Rule: the batch size stays as given; only the number of replicas is elastic.
"""

from collections.abc import Mapping

from voda.domain.errors import InvalidInput
from voda.domain.job import JobSpec
from voda.simulator.data import POLLUX, find_folder, intact
from voda.simulator.workload import Arrival, Workload
from voda.simulator.workloads.pollux_applications import Application, PolluxProfile, load_application
from voda.simulator.workloads.pollux_step_times import read_rows
from voda.simulator.workloads.request import WorkloadRequest, parse_nodes, total_gpus


def load(variant: str, request: WorkloadRequest) -> Workload:
    """Return one of the workloads; see the catalogue."""
    return _load(f"pollux/{variant}", "workloads", request)


def load_double(variant: str, request: WorkloadRequest) -> Workload:
    """Return one of the workloads at double load; see `load`."""
    return _load(f"pollux-2x/{variant}", "workloads-2.0", request)


def _load(name: str, folder: str, request: WorkloadRequest) -> Workload:
    root = find_folder(POLLUX, request.data)
    path = root / folder / f"{name.partition('/')[2]}.csv"
    if not path.is_file():
        there = ", ".join(sorted(other.stem for other in path.parent.glob("workload-*.csv"))) or "none"
        raise InvalidInput(f"workload {name}: there is no {path}; the folder has {there}")
    nodes = request.nodes or parse_nodes("16x4")
    gpus = total_gpus(nodes)
    with intact(root, POLLUX):
        jobs = (_arrival(row, load_application(row["application"], root / "traces"), gpus) for row in read_rows(path))
        arrivals = tuple(sorted(jobs, key=lambda job: job.submitted_s))
    return Workload(
        name=name,
        source=f"{POLLUX.origin}: {folder}/{path.name}; Qiao et al., OSDI'21",
        arrivals=arrivals,
        nodes=nodes,
    )


def _arrival(row: Mapping[str, str], application: Application, gpus: int) -> Arrival:
    name, batch = row["name"], int(row["batch_size"])
    most = min(gpus, application.max_replicas(batch))
    spec = JobSpec(
        job_id=name,
        # Jobs of one application scale differently at different batch sizes, and share no history.
        category=f"{application.name}-b{batch}",
        name=name,
        requested_replicas=min(int(row["num_replicas"]), most),
        max_replicas=most,
        epochs=application.epochs,
    )
    profile = PolluxProfile(application=application, batch=batch)
    return Arrival(spec=spec, submitted_s=float(int(row["time"])), profile=profile)
