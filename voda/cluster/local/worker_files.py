"""The devices of a job's workers, and the files that tell its launcher of them.

Rule: a grant is written before a worker is named to the launcher, and taken back before the worker is.
"""

from collections.abc import Sequence

from voda.cluster.local import mpi, torch
from voda.cluster.local.command import visible
from voda.cluster.local.context import Site
from voda.cluster.local.processes.folder import Folder
from voda.cluster.local.processes.record import Record
from voda.cluster.local.run_spec import Blueprint
from voda.domain.errors import ClusterUnavailable


def take(site: Site, folder: Folder, record: Record, blueprint: Blueprint, new: Sequence[int]) -> None:
    """Take devices for new workers, record it and let their processes come in; or change nothing.

    Raises:
        ActionRefused: there are too few.
        ClusterUnavailable: the folder cannot be written; what of it was written is still there.
    """
    per_worker = blueprint.spec.gpus_per_replica
    taken = site.slots.take(record.job_id, new, per_worker, barred=site.barred, node=site.node)
    before = record.state
    try:
        folder.make()
        if not record.devices:
            record.port = torch.free_port() if blueprint.kind == "torch" else 0
        if before != "running":
            record.resumed_at = site.now()
            record.done.clear()
        record.kind, record.gpus_per_replica = blueprint.kind, per_worker
        record.grace_s, record.boot_id = blueprint.grace_s, site.boot_id
        record.devices |= taken
        record.state = "running"
        folder.save(record)
        furnish(site, folder, record, blueprint)
    except OSError as error:
        for index, names in taken.items():
            site.slots.release(record.job_id, index, names)
            record.devices.pop(index, None)
        record.state = before
        raise ClusterUnavailable(f"job {record.job_id}: its folder cannot be written: {error}") from error


def furnish(site: Site, folder: Folder, record: Record, blueprint: Blueprint) -> None:
    """Write all that a launcher and its workers need, as the record has it; a PyTorchJob needs nothing.

    Raises:
        OSError: the folder cannot be written.
    """
    if blueprint.kind != "mpi":
        return
    mpi.write_agents(folder, blueprint.slots_per_worker)
    for index in record.leaving:
        folder.revoke(f"worker-{index}")
    for index in record.wanted:
        folder.grant(f"worker-{index}", 0, visible(site, record, [index]))
    mpi.write_devices(folder, visible(site, record, record.wanted))
    mpi.write_hosts(folder, blueprint, record.wanted, site.transport)


def last_lines(folder: Folder, name: str, run: int, *, lines: int = 5, most_bytes: int = 2000) -> str:
    """Return the end of what a replica printed in one run; empty where it printed nothing."""
    alive = folder.alive(name, run)
    try:
        with folder.log(name).open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(size - most_bytes, min(alive.log_at if alive else 0, size)))
            printed = file.read().decode("utf-8", "replace").split("\n")
    except OSError:
        return ""
    return "\n".join([line.rstrip() for line in printed if line.strip()][-lines:])
