"""How the launcher of an MPIJob finds its workers on this machine: the operator's files, and the way into a worker.

Two ways, chosen once when the cluster opens. `remote`: hosts have the operator's names, and mpirun runs rsh_agent.py
instead of ssh, which gives each worker's daemon a hostname of its own (Open MPI's daemons must differ in it). `rank`,
where the system allows no such hostnames: the only host is localhost, and rsh_agent.py stands before every rank. In
both, each rank runs on its worker's devices. Rule: the files are rewritten whole; the launcher may read them at any
moment.
"""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Literal

from voda.cluster.local import rsh_agent
from voda.cluster.local.folder import JobFolder, write_whole
from voda.cluster.local.run_spec import RunSpec

Transport = Literal["remote", "rank"]
MOUNT: Final = re.compile(r"/etc/mpi(?=$|[/\s:;,'\"])")
_AGENT: Final = rsh_agent.__name__.rpartition(".")[2]
_PROBE: Final = (
    f"import os,sys; sys.path.insert(0, sys.argv[1]); import {_AGENT}; {_AGENT}.set_hostname('voda-probe');"
    "sys.exit(os.uname().nodename != 'voda-probe')"
)
_LONGEST_HOSTNAME: Final = 63
SIGKILL_AFTER_MOST_S: Final = 3600


def probed() -> Transport:
    """Find out which way into a worker this machine allows; takes some tens of milliseconds."""
    words = [sys.executable, "-I", "-S", "-c", _PROBE, os.path.dirname(rsh_agent.__file__)]
    try:
        done = subprocess.run(words, capture_output=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return "rank"
    return "remote" if done.returncode == 0 else "rank"


def hostname(name: str, index: int) -> str:
    """Return the host name of a worker, no longer than a kernel takes."""
    suffix = f"-worker-{index}"
    return name[: _LONGEST_HOSTNAME - len(suffix)] + suffix


def hosts(blueprint: RunSpec, indices: Sequence[int], transport: Transport) -> tuple[str, str]:
    """Return the texts of hostfile and discover_hosts.sh for these workers."""
    slots = blueprint.slots_per_worker
    if transport == "rank":
        total = len(indices) * slots
        lines = [f"localhost slots={total}"] if total else []
        return _text(lines), _script([f"localhost:{total}"] if total else [])
    name, namespace = blueprint.name, blueprint.spec.namespace
    tail = f".{name}.{namespace}.svc" if blueprint.is_mpi_v2 else ""
    named = [f"{hostname(name, index)}{tail}" for index in sorted(indices)]
    # The operator sorts pods by name, so worker-10 comes before worker-2.
    found = sorted(named)
    shown = found if blueprint.is_mpi_v2 else [f"{host}:{slots}" for host in found]
    return _text([f"{host} slots={slots}" for host in named]), _script(shown)


def write_hosts(folder: JobFolder, blueprint: RunSpec, indices: Sequence[int], transport: Transport) -> None:
    """Rewrite the files that tell of the workers.

    Raises:
        OSError: they cannot be written.
    """
    hostfile, discovery = hosts(blueprint, indices, transport)
    write_whole(folder.mpi / "hostfile", hostfile.encode())
    write_whole(folder.mpi / "discover_hosts.sh", discovery.encode(), mode=0o755)


def write_agents(folder: JobFolder, slots: int) -> None:
    """Write the scripts that mpirun calls to get into a worker."""
    python = f"exec {shlex.quote(sys.executable)} -I -S {shlex.quote(rsh_agent.__file__)}"
    replicas = shlex.quote(str(folder.replicas))
    write_whole(folder.mpi / "rsh.sh", f'#!/bin/sh\n{python} remote {replicas} "$@"\n'.encode(), mode=0o755)
    write_whole(folder.mpi / "rank.sh", f'#!/bin/sh\n{python} rank {replicas} {slots} "$@"\n'.encode(), mode=0o755)


def write_devices(folder: JobFolder, devices: Sequence[str]) -> None:
    """Rewrite the line that names the GPUs of all workers; `voda run` reads it at each start."""
    write_whole(folder.mpi / "devices", (",".join(devices) + "\n").encode())


def environment(folder: JobFolder, *, grace_s: float, transport: Transport) -> dict[str, str]:
    """Return what the launcher needs so that a bare `mpirun` just works; the manifest's own variables go before."""
    mpi = folder.mpi
    hostfile = str(mpi / "hostfile")
    env = {
        # Of Open MPI 5 (PRRTE), then of 4 (ORTE).
        "PRTE_MCA_prte_default_hostfile": hostfile,
        "PRTE_MCA_hwloc_default_binding_policy": "none",
        "OMPI_MCA_orte_default_hostfile": hostfile,
        "OMPI_MCA_hwloc_base_binding_policy": "none",
        "OMPI_MCA_orte_keep_fqdn_hostnames": "true",
        # A rank that waits for the others must not spin on a core that they need: mpirun takes each worker for a
        # machine of its own, and would not know that they share one.
        "OMPI_MCA_mpi_yield_when_idle": "true",
        # A rank that is told to end has as long as its pod would have.
        "OMPI_MCA_odls_base_sigkill_timeout": str(min(int(grace_s), SIGKILL_AFTER_MOST_S)),
    }
    if transport == "remote":
        env["PRTE_MCA_plm_ssh_agent"] = env["OMPI_MCA_plm_rsh_agent"] = str(mpi / "rsh.sh")
    else:
        env["PRTE_MCA_odls_base_exec_agent"] = env["OMPI_MCA_orte_fork_agent"] = str(mpi / "rank.sh")
    if os.geteuid() == 0:
        for tool in ("PRTE", "OMPI"):
            env[f"{tool}_ALLOW_RUN_AS_ROOT"] = env[f"{tool}_ALLOW_RUN_AS_ROOT_CONFIRM"] = "1"
    return env


def mounted(text: str, folder: Path) -> str:
    """Return a word of a command, or a variable's value, with /etc/mpi replaced by the job's own folder."""
    return MOUNT.sub(lambda _: str(folder), text) if "/etc/mpi" in text else text


def mounted_env(env: Mapping[str, str], folder: Path) -> dict[str, str]:
    """Return the variables with /etc/mpi replaced in their values."""
    return {name: mounted(value, folder) for name, value in env.items()}


def _text(lines: Sequence[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def _script(shown: Sequence[str]) -> str:
    return _text(["#!/bin/sh", *(f"echo {line}" for line in shown)])
