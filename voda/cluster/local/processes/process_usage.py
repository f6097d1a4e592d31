"""Whether a worker is vacant: no process is left that could use its devices.

Rule: when in doubt it is not. A lock tells of the processes that came in by the shim or the agent, the mark in the
environment of those they started, and CUDA_VISIBLE_DEVICES of those that a launcher started by itself.
"""

from collections.abc import Collection
from pathlib import Path

from voda.cluster.local.command import LAUNCHER, visible
from voda.cluster.local.context import Site
from voda.cluster.local.processes.folder import Folder
from voda.cluster.local.processes.process_table import is_locked, kill_marked, marked
from voda.cluster.local.processes.record import Record

_DEVICES = b"CUDA_VISIBLE_DEVICES="


def is_at_work(folder: Folder, name: str) -> bool:
    """Say whether a replica has a shim, or any process that outlived it; such processes are killed."""
    home = folder.replicas / name
    return is_locked(home / "lock") or kill_marked(home) > 0


def is_deserted(folder: Folder) -> bool:
    """Say whether a launcher is gone with all that was started by it or for its workers; what is left is killed."""
    return not is_locked(folder.replicas / LAUNCHER / "lock") and kill_marked(folder.replicas) == 0


def is_used(site: Site, folder: Folder, record: Record, index: int) -> bool:
    """Say whether any process is in a launcher's worker, or was given one of its GPUs."""
    home = home_of(folder, index)
    gpus = {name.encode() for name in visible(site, record, [index])}
    mark = f"VODA_REPLICA={home}".encode()
    return is_locked(home / "lock") or any(
        mark in entries or gpus & _gpus_in(entries)
        for entries in (environment.split(b"\0") for _, environment in marked(folder.replicas))
    )


def home_of(folder: Folder, index: int) -> Path:
    """Return the folder of a launcher's worker."""
    return folder.replicas / f"worker-{index}"


def _gpus_in(entries: Collection[bytes]) -> set[bytes]:
    named = next((entry for entry in entries if entry.startswith(_DEVICES)), _DEVICES)
    return set(named.removeprefix(_DEVICES).split(b","))
