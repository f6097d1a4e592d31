"""The command of a replica: its manifest's program, expanded, with all that this machine adds to it.

Rule: the manifest's own variables go before what the operators and this machine set by themselves; the paths under
/etc/mpi lead into the job's folder wherever they stand.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from voda.cluster.local.context import LocalContext
from voda.cluster.local.folder import JobFolder, LocalJobRecord
from voda.cluster.local.rendezvous import agent_environment, launcher_environment, mounted
from voda.cluster.local.replica import ReplicaCommand
from voda.cluster.local.run_spec import LAUNCHER, RunSpec
from voda.manifests.programs import POD_NAME, Program, expand_program


def command_of(
    site: LocalContext, folder: JobFolder, blueprint: RunSpec, record: LocalJobRecord, replica: str
) -> ReplicaCommand:
    """Return what a replica runs now."""
    program = blueprint.programs[blueprint.role_of(replica)]
    index = index_of(blueprint, record, replica)
    if index is None:
        of_kind = launcher_environment(folder, grace_s=blueprint.grace_s, transport=site.transport)
    else:
        of_kind = agent_environment(blueprint, index, size=len(record.wanted), port=record.port)
    base = {
        **site.config.base,
        **_devices(site, folder, record, index),
        **of_kind,
        **site.config.environment(blueprint.spec),
        "VODA_JOB_DIR": str(folder.path),
        POD_NAME: f"{blueprint.name}-{replica}",
    }
    argv, env = expand_program(program, base)
    return ReplicaCommand(
        argv=tuple(mounted(word, folder.mpi) for word in argv),
        env={name: mounted(value, folder.mpi) for name, value in env.items()},
        cwd=_working_dir(program, blueprint, folder),
        grace_s=program.grace_s,
        log_bytes=site.config.log_bytes,
    )


def index_of(blueprint: RunSpec, record: LocalJobRecord, replica: str) -> int | None:
    """Return which worker a replica is; None for a launcher, and for one that holds nothing."""
    if replica == LAUNCHER:
        return None
    return next((index for index in record.devices if blueprint.replica_of(index) == replica), None)


def visible(site: LocalContext, record: LocalJobRecord, indices: Sequence[int]) -> tuple[str, ...]:
    """Return the GPUs of some workers, as CUDA_VISIBLE_DEVICES names them; empty on CPU slots."""
    return site.slots.visible(name for index in indices for name in record.devices.get(index, ()))


def _devices(site: LocalContext, folder: JobFolder, record: LocalJobRecord, index: int | None) -> Mapping[str, str]:
    if not visible(site, record, record.wanted):
        return {}
    # As NVML counts them, whatever the order of their speeds.
    order = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    if index is None:
        return {**order, "CUDA_VISIBLE_DEVICES": "", "VODA_DEVICES_FILE": str(folder.mpi / "devices")}
    return {**order, "CUDA_VISIBLE_DEVICES": ",".join(visible(site, record, [index]))}


def _working_dir(program: Program, blueprint: RunSpec, folder: JobFolder) -> Path:
    if program.working_dir and Path(program.working_dir).is_dir():
        return Path(program.working_dir)
    return Path(blueprint.working_dir) if blueprint.working_dir else folder.path
