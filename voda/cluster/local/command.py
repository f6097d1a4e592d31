"""The command of a replica: its manifest's program, expanded, with all that this machine adds to it.

Rule: the manifest's own variables go before what the operators and this machine set by themselves; the paths under
/etc/mpi lead into the job's folder wherever they stand.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec.structs import replace

from voda.cluster.local.context import JobState, LocalContext
from voda.cluster.local.folder import JobFolder, LocalJobRecord
from voda.cluster.local.isolation.job_environment import PACKAGE, user_variables
from voda.cluster.local.isolation.limits import Limits, launcher_limits
from voda.cluster.local.isolation.mps import share_variables
from voda.cluster.local.processes.replica import ReplicaCommand
from voda.cluster.local.rendezvous import agent_environment, launcher_environment, mounted
from voda.cluster.local.run_spec import LAUNCHER, RunSpec
from voda.domain.errors import InvalidField
from voda.manifests.programs import POD_NAME, ReplicaProgram, expand_program
from voda.programs.importable import with_package


def command_of(state: JobState, run_spec: RunSpec, replica: str) -> ReplicaCommand:
    """Return what a replica runs now."""
    context, folder, record, account = state.context, state.folder, state.record, state.account
    program, settings = run_spec.programs[run_spec.role_of(replica)], context.config.settings()
    index = index_of(run_spec, record, replica)
    if index is None:
        of_kind = launcher_environment(folder, transport=context.transport)
    else:
        # A command may begin beside a replica that is told to end just now.
        workers = sorted({*record.wanted, index})
        of_kind = agent_environment(run_spec, index, workers=workers, port=record.port)
    base = {
        **context.config.base,
        **(user_variables(account) if account else {}),
        **_devices(context, folder, record, index),
        **of_kind,
        **context.config.environment(run_spec.spec),
        "VODA_JOB_DIR": str(_own_folder(run_spec, folder)),
        POD_NAME: f"{run_spec.name}-{replica}",
    }
    argv, env = expand_program(program, base)
    return ReplicaCommand(
        argv=tuple(mounted(word, folder.mpi) for word in _with_kept_script(argv, run_spec)),
        env={
            name: mounted(value, folder.mpi)
            for name, value in with_package(env, context.config.folder / PACKAGE).items()
        },
        folders=_folders(program, run_spec, folder),
        files=run_spec.env_files,
        account=account,
        nice=run_spec.nice,
        grace_s=min(program.grace_s, settings.termination_grace_s),
        log_bytes=min(context.config.log_bytes, settings.output_bytes // output_count(run_spec, record)),
    )


def _with_kept_script(argv: Sequence[str], run_spec: RunSpec) -> Sequence[str]:
    """Return a command with the script that was kept in place of its own; a later word of its name is an argument."""
    if not run_spec.kept_script or run_spec.script not in argv:
        return argv
    at = argv.index(run_spec.script)
    return (*argv[:at], run_spec.kept_script, *argv[at + 1 :])


def path_of(state: JobState, run_spec: RunSpec, replica: str) -> str:
    """Return the PATH of a replica's program; empty where it has none."""
    try:
        return command_of(state, run_spec, replica).env.get("PATH", "")
    except (InvalidField, ValueError):
        return ""


def output_count(run_spec: RunSpec, record: LocalJobRecord) -> int:
    """Return how many outputs the job has or may get; an MPIJob's workers print through its launcher."""
    if run_spec.kind == "mpi":
        return 1
    return max(1, run_spec.spec.max_replicas, len(record.runs))


def index_of(run_spec: RunSpec, record: LocalJobRecord, replica: str) -> int | None:
    """Return which worker a replica is; None for a launcher, and for one that holds nothing."""
    if replica == LAUNCHER:
        return None
    return next((index for index in record.devices if run_spec.replica_of(index) == replica), None)


def limits_of(state: JobState, run_spec: RunSpec, replica: str) -> Limits:
    """Return what a replica may take now; a launcher as much as all its workers, whose ranks it starts."""
    context, record = state.context, state.record
    if replica == LAUNCHER:
        limits, devices = launcher_limits(run_spec.limits, len(record.devices)), [*record.devices.values()]
    else:
        limits = run_spec.limits.get(run_spec.role_of(replica), Limits())
        index = index_of(run_spec, record, replica)
        devices = [] if index is None else [record.devices[index]]
        devices += [(record.share_device,)] if record.share is not None else []
    gpus = context.slots.minors(name for names in devices for name in names)
    return replace(limits, pids=context.config.pids_limit, gpus=gpus, nice=run_spec.nice)


def visible(context: LocalContext, record: LocalJobRecord, indices: Sequence[int]) -> tuple[str, ...]:
    """Return the GPUs of some workers, as CUDA_VISIBLE_DEVICES names them; empty on CPU slots."""
    if record.share is not None:
        # By uuid, since MPS' server may count GPUs in another order.
        device = context.slots.devices.get(record.share_device)
        return (device.uuid if device is not None and device.uuid else record.share_device,)
    return context.slots.visible(name for index in indices for name in record.devices.get(index, ()))


def _devices(context: LocalContext, folder: JobFolder, record: LocalJobRecord, index: int | None) -> Mapping[str, str]:
    if not visible(context, record, record.wanted):
        return {"CUDA_VISIBLE_DEVICES": ""} if context.slots.has_gpus else {}
    # As NVML counts them, whatever the order of their speeds.
    order = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    if record.share is not None:
        only = {"CUDA_VISIBLE_DEVICES": ",".join(visible(context, record, [0]))}
        return {**order, **only, **share_variables(record.share, context.config.mps())}
    if index is None:
        return {**order, "CUDA_VISIBLE_DEVICES": "", "VODA_DEVICES_FILE": str(folder.mpi / "devices")}
    return {**order, "CUDA_VISIBLE_DEVICES": ",".join(visible(context, record, [index]))}


def _folders(program: ReplicaProgram, run_spec: RunSpec, folder: JobFolder) -> list[Path]:
    """Return where a program begins: the manifest's folder if it is there, which its user finds out, else another."""
    named = [Path(program.working_dir)] if program.working_dir else []
    return [*named, Path(run_spec.working_dir) if run_spec.working_dir else _own_folder(run_spec, folder)]


def _own_folder(run_spec: RunSpec, folder: JobFolder) -> Path:
    """Return the folder that is the program's own: that of the job, or of the one in whose place it goes on."""
    first = run_spec.spec.continues
    return folder.path.with_name(first) if first else folder.path
