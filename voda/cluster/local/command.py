"""The command of a replica: its manifest's program, expanded, with all that this machine adds to it.

Rule: the manifest's own variables go before what the operators and this machine set by themselves; the paths under
/etc/mpi lead into the job's folder wherever they stand.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec.structs import replace

from voda.cluster.local.context import JobState, LocalContext
from voda.cluster.local.folder import JobFolder, LocalJobRecord
from voda.cluster.local.isolation.job_environment import user_variables
from voda.cluster.local.isolation.limits import Limits, launcher_limits
from voda.cluster.local.rendezvous import agent_environment, launcher_environment, mounted
from voda.cluster.local.replica import ReplicaCommand
from voda.cluster.local.run_spec import LAUNCHER, RunSpec
from voda.manifests.programs import POD_NAME, Program, expand_program


def command_of(state: JobState, blueprint: RunSpec, replica: str) -> ReplicaCommand:
    """Return what a replica runs now."""
    site, folder, record, account = state.context, state.folder, state.record, state.account
    program = blueprint.programs[blueprint.role_of(replica)]
    index = index_of(blueprint, record, replica)
    if index is None:
        of_kind = launcher_environment(folder, grace_s=blueprint.grace_s, transport=site.transport)
    else:
        of_kind = agent_environment(blueprint, index, size=len(record.wanted), port=record.port)
    base = {
        **site.config.base,
        **(user_variables(account) if account else {}),
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
        folders=_folders(program, blueprint, folder),
        files=blueprint.env_files,
        account=account,
        grace_s=program.grace_s,
        log_bytes=min(site.config.log_bytes, site.config.output_bytes() // output_count(blueprint, record)),
    )


def output_count(blueprint: RunSpec, record: LocalJobRecord) -> int:
    """Return how many outputs the job has or may get; an MPIJob's workers print through its launcher."""
    if blueprint.kind == "mpi":
        return 1
    return max(1, blueprint.spec.max_replicas, len(record.runs))


def index_of(blueprint: RunSpec, record: LocalJobRecord, replica: str) -> int | None:
    """Return which worker a replica is; None for a launcher, and for one that holds nothing."""
    if replica == LAUNCHER:
        return None
    return next((index for index in record.devices if blueprint.replica_of(index) == replica), None)


def limits_of(state: JobState, blueprint: RunSpec, replica: str) -> Limits:
    """Return what a replica may take now; a launcher as much as all its workers, whose ranks it starts."""
    site, record = state.context, state.record
    if replica == LAUNCHER:
        limits, devices = launcher_limits(blueprint.limits, len(record.devices)), [*record.devices.values()]
    else:
        limits = blueprint.limits.get(blueprint.role_of(replica), Limits())
        index = index_of(blueprint, record, replica)
        devices = [] if index is None else [record.devices[index]]
    gpus = site.slots.minors(name for names in devices for name in names)
    return replace(limits, pids=site.config.pids_limit, gpus=gpus)


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


def _folders(program: Program, blueprint: RunSpec, folder: JobFolder) -> list[Path]:
    """Return where a program begins: the manifest's folder if it is there, which its user finds out, else another."""
    named = [Path(program.working_dir)] if program.working_dir else []
    return [*named, Path(blueprint.working_dir) if blueprint.working_dir else folder.path]
