"""The workloads of the Pollux paper: 160 or 320 jobs within 8 hours, on 16 nodes of 4 GPUs.

Source: Qiao et al., OSDI'21, and its artifact, workloads/workload-N.csv ("TunedJobs") and workloads-2.0/.
Rule: the batch size stays as given; only the number of replicas is elastic.
"""

from pathlib import Path

from msgspec import Struct

from voda.domain.errors import InvalidInput
from voda.domain.job import JobSpec
from voda.simulator.data import POLLUX, find_folder, intact
from voda.simulator.workload import Arrival, Workload
from voda.simulator.workloads.pollux_applications import Application, PolluxProfile, load_application
from voda.simulator.workloads.pollux_step_times import read_rows
from voda.simulator.workloads.request import WorkloadRequest, parse_nodes, total_gpus


class TunedJob(Struct, frozen=True, kw_only=True):
    """One row of a workload file."""

    name: str
    submitted_s: int
    application: str
    replicas: int
    batch: int


def read_jobs(path: Path) -> tuple[TunedJob, ...]:
    """Return the rows of a workload file, in file order, which is the order of submission."""
    return tuple(
        TunedJob(
            name=row["name"],
            submitted_s=int(row["time"]),
            application=row["application"],
            replicas=int(row["num_replicas"]),
            batch=int(row["batch_size"]),
        )
        for row in read_rows(path)
    )


def load(variant: str, request: WorkloadRequest) -> Workload:
    """Return one of the workloads; see the catalogue.

    Raises:
        DataNotFound: the data set is not on this machine.
        InvalidInput: the data set has no such file.
    """
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
        jobs = sorted(read_jobs(path), key=lambda job: job.submitted_s)
        arrivals = tuple(_arrival(job, load_application(job.application, root / "traces"), gpus) for job in jobs)
    return Workload(
        name=name,
        source=f"{POLLUX.origin}: {folder}/{path.name}; Qiao et al., OSDI'21",
        arrivals=arrivals,
        nodes=nodes,
    )


def _arrival(job: TunedJob, application: Application, gpus: int) -> Arrival:
    most = min(gpus, application.max_replicas(job.batch))
    spec = JobSpec(
        job_id=job.name,
        # Jobs of one application scale differently at different batch sizes, and share no history.
        category=f"{job.application}-b{job.batch}",
        name=job.name,
        requested_replicas=min(job.replicas, most),
        max_replicas=most,
        epochs=application.epochs,
    )
    profile = PolluxProfile(application=application, batch=job.batch)
    return Arrival(spec=spec, submitted_s=float(job.submitted_s), profile=profile)
