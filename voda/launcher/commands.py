"""Makes the command lines and environments that start a program by mpirun or torchrun. Pure.

Rule: every process of the program gets SIGTERM and the whole grace for its checkpoint. mpirun does not do that by
itself: on SIGTERM Open MPI 5 kills its processes after half a second and 4 after two, and as soon as one of them has
ended otherwise than by MPI_Finalize it does the same to all others. So SIGUSR2, which mpirun passes on, is sent, and a
small shell around each process turns it into SIGTERM and does not tell mpirun how the process then ended.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from voda.launcher.hosts import Layout
from voda.programs.launchers import torchrun_words

RUN_DIR = "VODA_RUN_DIR"
"""Names the launcher's own folder in the environment of all it starts, which marks them as its processes."""

# What the shell around each process has to hold:
# - the program ignores SIGUSR2, which mpirun sends to the whole process group; a second one changes nothing;
# - SIGTERM here comes from mpirun or from a dying host, so that an end with 0 after it must not pass for success.
SHELL = """\
stop=
child=
trap 'test "$stop" || { stop=0; test "$child" && kill -TERM "$child" 2>/dev/null; }' USR2
trap 'test "$stop" || stop=143' TERM
(trap "" USR2; trap - TERM; exec "$@") <&0 &
child=$!
test "$stop" = 0 && kill -TERM "$child" 2>/dev/null
while :; do
  wait "$child"
  code=$?
  kill -0 "$child" 2>/dev/null || break
done
exit "${stop:-$code}"
"""

# By their names in Open MPI 5 (PRRTE) and 4.
_SETTINGS: Mapping[str, str] = {
    # Containers and login nodes of small clusters train as root.
    "PRTE_ALLOW_RUN_AS_ROOT": "1",
    "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    # A process that wrote its checkpoint need not get as far as MPI_Finalize.
    "PRTE_MCA_prte_allowed_exit_without_sync": "1",
    "OMPI_MCA_orte_allowed_exit_without_sync": "1",
}
_SESSION_FOLDERS = {
    "PRTE_MCA_prte_local_tmpdir_base": "PRTE_MCA_prte_tmpdir_base",
    "OMPI_MCA_orte_local_tmpdir_base": "OMPI_MCA_orte_tmpdir_base",
}
"""That of mpirun alone -> that of its daemons too, beside which the former is refused."""
_DEFAULT_HOSTFILES = ("PRTE_MCA_prte_default_hostfile", "OMPI_MCA_orte_default_hostfile")
# By name: a worker has variables of its own under the same prefix.
_FORWARDED = frozenset(
    {
        "VODA_JOB_ID",
        "VODA_JOB_NAME",
        "VODA_API_URL",
        "VODA_JOB_TOKEN",
        "VODA_JOB_DIR",
        "VODA_METRICS_DIR",
        "VODA_ARRAY_NAME",
        "VODA_ARRAY_TASK_ID",
        "VODA_ARRAY_TASK_COUNT",
        "VODA_ARRAY_TASK_MIN",
        "VODA_ARRAY_TASK_MAX",
        "VODA_CA",
        # sshd gives the programs that it starts a PATH of its own, not the image's.
        "PATH",
        "EPOCHS",
        "JOB_NAME",
        "PYTHONUNBUFFERED",
        RUN_DIR,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchCommand:
    argv: Sequence[str]
    env: Mapping[str, str]


def mpirun(program: Sequence[str], layout: Layout, env: Mapping[str, str], *, folder: Path) -> LaunchCommand:
    """Return the mpirun command for a program, for Open MPI 4 and 5.

    Args:
        program: command and arguments.
        layout: where; it must be in `folder`/hostfile too.
        env: the launcher's environment.
        folder: the launcher's own, fresh for every start.
    """
    hostfile = folder / "hostfile"
    own = {**_common(layout, env), RUN_DIR: str(folder.parent)}
    forwarded = [word for name in sorted(_FORWARDED.intersection(own)) for word in ("-x", name)]
    argv = ["mpirun", "--hostfile", str(hostfile), "-np", str(layout.size), "--map-by", "slot", "--bind-to", "none"]
    settings = dict(_SETTINGS) | {
        for_all if for_all in env else alone: str(folder) for alone, for_all in _SESSION_FOLDERS.items()
    }
    settings |= {name: str(hostfile) for name in _DEFAULT_HOSTFILES if name in env}
    # Ranks that wait must let others have the core: slots may be more than cores, and jobs may share a machine.
    own.setdefault("OMPI_MCA_mpi_yield_when_idle", "1")
    return LaunchCommand(argv=[*argv, *forwarded, "/bin/sh", "-c", SHELL, "voda", *program], env={**own, **settings})


def torchrun(
    program: Sequence[str], layout: Layout, env: Mapping[str, str], *, folder: Path, grace_s: float
) -> LaunchCommand:
    """Return the torchrun command, for processes of one machine, which have a grace after SIGTERM."""
    # --standalone takes a free port, so that two programs on one machine do not meet.
    options = ("--standalone", "--nnodes=1", f"--nproc_per_node={layout.size}", "--max_restarts=0")
    # torchrun (seen in torch 2.13) kills them after 30 s unless it is told otherwise.
    own = {"TORCH_ELASTIC_SHUTDOWN_TIMEOUT": str(int(grace_s)), **_common(layout, env), RUN_DIR: str(folder.parent)}
    return LaunchCommand(argv=torchrun_words(program, *options), env=own)


def hostfile_text(layout: Layout) -> str:
    """Return the hostfile of a layout."""
    return "".join(f"{host} slots={slots}\n" for host, slots in layout.slots.items())


def _common(layout: Layout, env: Mapping[str, str]) -> dict[str, str]:
    # Otherwise Python holds back what it prints, because mpirun reads it through a pipe.
    own = {"PYTHONUNBUFFERED": "1", **env}
    return own if layout.devices is None else {**own, "CUDA_VISIBLE_DEVICES": layout.devices}
