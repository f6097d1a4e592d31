"""How the replicas of a job find each other on this machine: the files and variables that the operators would set.

The launcher of an MPIJob has two ways into a worker, chosen once when the cluster opens. `remote`: hosts have the
operator's names, and mpirun runs rsh_agent.py instead of ssh, which gives each worker's daemon a hostname of its own
(Open MPI's daemons must differ in it). `rank`, where the system allows no such hostnames: the only host is localhost.
In both, rsh_agent.py stands before every rank, which runs on its worker's devices. MPICH gets in by a third way, which
needs no such hostnames. Rule: the files are rewritten whole; the launcher may read them at any moment.

Torch agents meet at a port of this machine. All that meet there are started for one size, with ranks in the order of
their workers, and none joins or leaves later (see `JobReplicas.renew_generation`). torch's own elasticity is left out:
where one agent ends or comes late, the others may wait for minutes or for ever.
"""

import inspect
import os
import re
import shlex
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Literal

from msgspec import Struct

from voda.cluster.local.folder import JobFolder
from voda.cluster.local.isolation.user_folders import RECORDS
from voda.cluster.local.processes import rsh_agent
from voda.cluster.local.run_spec import RunSpec
from voda.kinds.pod_template import LAST_CALL, LAST_CALL_S, UNSHARED_STORE, TorchElasticPolicy
from voda.untrusted_files import UntrustedFolder

Transport = Literal["remote", "rank"]
_MOUNT: Final = re.compile(r"/etc/mpi(?=$|[/\s:;,'\"])")
_AGENT: Final = rsh_agent.__name__.rpartition(".")[2]
_PROBE: Final = (
    # Whoever cannot read the agent ends with another status than 0 and 1.
    f"import os,sys; sys.path.insert(0, sys.argv[1]); sys.dont_write_bytecode = True\n"
    f"try: import {_AGENT}\nexcept ImportError: sys.exit(2)\n"
    f"try: {_AGENT}.set_hostname('voda-probe')\nexcept SystemExit: sys.exit(1)\n"
    "sys.exit(os.uname().nodename != 'voda-probe')"
)
_NOBODY: Final = 65_534
_SYSTEM_PYTHON: Final = "/usr/bin/python3"
_SHARED: Final = ".agent"
"""Folder beside the records of users' jobs; no job can have that name."""
_LONGEST_HOSTNAME: Final = 63
_ADDRESS: Final = "127.0.0.1"


class Agent(Struct, frozen=True, kw_only=True):
    """What runs rsh_agent.py."""

    python: str = sys.executable
    script: str = rsh_agent.__file__


def probe_transport() -> Transport:
    """Find out which way into a worker this machine allows; takes some tens of milliseconds."""
    return "remote" if _probed(Agent()) == 0 else "rank"


def probe_for_users(jobs: Path) -> tuple[Agent, Transport]:
    """Find out which agent, and which way into a worker, programs of other users than root can use; as slow.

    They may be unable to read where voda is installed, so the agent's script is copied to where they can.

    Raises:
        OSError: the folder cannot be written.
    """
    files = UntrustedFolder(jobs, uid=os.geteuid())
    for folder, mode in ((RECORDS, 0o711), (f"{RECORDS}/{_SHARED}", 0o755)):
        files.make(folder, mode=mode)
    script = Path(rsh_agent.__file__)
    files.write(f"{RECORDS}/{_SHARED}/{script.name}", inspect.getsource(rsh_agent).encode(), mode=0o644)
    for python in (sys.executable, _SYSTEM_PYTHON):
        agent = Agent(python=python, script=str(jobs / RECORDS / _SHARED / script.name))
        if (status := _probed(agent, user=_NOBODY)) in (0, 1):
            return agent, "remote" if status == 0 else "rank"
    return Agent(script=str(jobs / RECORDS / _SHARED / script.name), python=_SYSTEM_PYTHON), "rank"


def _probed(agent: Agent, user: int | None = None) -> int | None:
    """Return 0 where a process can get a hostname of its own, 1 where it cannot, other values where no agent runs."""
    words = [agent.python, "-I", "-S", "-c", _PROBE, os.path.dirname(agent.script)]
    other: dict[str, Any] = {} if user is None else {"user": user, "group": user, "extra_groups": ()}
    try:
        # Whoever has that user id too may read its environment, and voda's own holds secrets.
        done = subprocess.run(words, capture_output=True, timeout=10, check=False, cwd="/", env={}, **other)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.returncode


def hostname(name: str, index: int) -> str:
    """Return the host name of a worker, no longer than a kernel takes."""
    suffix = f"-worker-{index}"
    return name[: _LONGEST_HOSTNAME - len(suffix)] + suffix


def host_files(run_spec: RunSpec, indices: Sequence[int], transport: Transport) -> tuple[str, str]:
    """Return the texts of hostfile and discover_hosts.sh for these workers."""
    slots = run_spec.slots_per_worker
    if transport == "rank":
        total = len(indices) * slots
        lines = [f"localhost slots={total}"] if total else []
        return _text(lines), _script([f"localhost:{total}"] if total else [])
    name, namespace = run_spec.name, run_spec.spec.namespace
    tail = f".{name}.{namespace}.svc" if run_spec.is_mpi_v2 else ""
    named = [f"{hostname(name, index)}{tail}" for index in sorted(indices)]
    # The operator sorts pods by name, so worker-10 comes before worker-2.
    found = sorted(named)
    shown = found if run_spec.is_mpi_v2 else [f"{host}:{slots}" for host in found]
    return _text([f"{host} slots={slots}" for host in named]), _script(shown)


def write_hosts(folder: JobFolder, run_spec: RunSpec, indices: Sequence[int], transport: Transport) -> None:
    """Rewrite hostfile and discover_hosts.sh."""
    hostfile, discovery = host_files(run_spec, indices, transport)
    folder.files.write("mpi/hostfile", hostfile.encode(), mode=0o644)
    folder.files.write("mpi/discover_hosts.sh", discovery.encode(), mode=0o755)
    slots = run_spec.slots_per_worker
    proxies = _text([f"{hostname(run_spec.name, index)}:{slots}" for index in sorted(indices)])
    folder.files.write("mpi/hostfile.mpich", proxies.encode(), mode=0o644)


def write_agents(folder: JobFolder, slots: int, agent: Agent) -> None:
    """Write the scripts that mpirun calls to get into a worker."""
    python = f"exec {shlex.quote(agent.python)} -I -S {shlex.quote(agent.script)}"
    replicas = shlex.quote(str(folder.replicas))
    folder.files.write("mpi/rsh.sh", f'#!/bin/sh\n{python} remote {replicas} "$@"\n'.encode(), mode=0o755)
    folder.files.write("mpi/proxy.sh", f'#!/bin/sh\n{python} proxy {replicas} "$@"\n'.encode(), mode=0o755)
    folder.files.write("mpi/rank.sh", f'#!/bin/sh\n{python} rank {replicas} {slots} "$@"\n'.encode(), mode=0o755)


def write_devices(folder: JobFolder, devices: Sequence[str]) -> None:
    """Rewrite the line that names the GPUs of all workers; `voda run` reads it at each start."""
    folder.files.write("mpi/devices", (",".join(devices) + "\n").encode(), mode=0o644)


def launcher_environment(folder: JobFolder, *, transport: Transport) -> dict[str, str]:
    """Return what the launcher needs so that a bare `mpirun` just works; the manifest's own variables go before."""
    mpi = folder.mpi
    hostfile, sessions = str(mpi / "hostfile"), str(folder.path / ".openmpi")
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
        # Below /tmp what a killed mpirun left would stay, and hinder one that gets its process id (seen with Open MPI
        # 5.0.11: "The PMIx server's listener thread failed to start").
        "PRTE_MCA_prte_tmpdir_base": sessions,
        "OMPI_MCA_orte_tmpdir_base": sessions,
        "PRTE_MCA_odls_base_exec_agent": str(mpi / "rank.sh"),
        "OMPI_MCA_orte_fork_agent": str(mpi / "rank.sh"),
        # Of MPICH, which passes SIGTERM on by itself and waits for its ranks.
        "HYDRA_HOST_FILE": str(mpi / "hostfile.mpich"),
        # A rank has the environment of its proxy, which is the launcher's too, but for the worker's devices.
        "HYDRA_ENV": "none",
        "HYDRA_LAUNCHER": "rsh",
        "HYDRA_LAUNCHER_EXEC": str(mpi / "proxy.sh"),
    }
    if transport == "remote":
        env["PRTE_MCA_plm_ssh_agent"] = env["OMPI_MCA_plm_rsh_agent"] = str(mpi / "rsh.sh")
    if os.geteuid() == 0 and not folder.is_users:
        for tool in ("PRTE", "OMPI"):
            env[f"{tool}_ALLOW_RUN_AS_ROOT"] = env[f"{tool}_ALLOW_RUN_AS_ROOT_CONFIRM"] = "1"
    return env


def mounted(text: str, folder: Path) -> str:
    """Return a word of a command, or a variable's value, with /etc/mpi replaced by the job's own folder."""
    return _MOUNT.sub(lambda _: str(folder), text) if "/etc/mpi" in text else text


def free_port() -> int:
    """Return a port of this machine that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind((_ADDRESS, 0))
        return int(probe.getsockname()[1])


def agent_environment(run_spec: RunSpec, index: int, *, workers: Sequence[int], port: int) -> dict[str, str]:
    """Return what the agent of a worker is told of the others of its generation, who all meet at `port`."""
    processes = run_spec.processes or max(1, run_spec.spec.gpus_per_replica)
    rank, size = str(workers.index(index)), str(len(workers))
    env = {"PYTHONUNBUFFERED": "1", "PET_NPROC_PER_NODE": str(processes)}
    if run_spec.index_variable:
        env[run_spec.index_variable] = str(index)
    if run_spec.has_master:
        env |= {"MASTER_ADDR": _ADDRESS, "MASTER_PORT": str(port), "WORLD_SIZE": size, "RANK": rank}
    return {
        **env,
        "PET_NNODES": size,
        "PET_NODE_RANK": rank,
        # At a resize and at an end its ranks have as long as their pod would have; torch's own limit is 30 s.
        "TORCH_ELASTIC_SHUTDOWN_TIMEOUT": str(int(run_spec.grace_s)),
        **_rendezvous(run_spec, int(rank), port),
    }


def _rendezvous(run_spec: RunSpec, rank: int, port: int) -> dict[str, str]:
    elastic = run_spec.elastic or TorchElasticPolicy()
    # The static one is faster, by up to a second; but only with c10d do all agents restart with one.
    backend = "c10d" if run_spec.restarts_itself else "static"
    rdzv_id = elastic.rdzv_id or run_spec.spec.job_id
    if elastic.rdzv_backend not in (None, "c10d"):
        # What an earlier generation has closed there stays closed.
        backend, rdzv_id = elastic.rdzv_backend, f"{rdzv_id}-{port}"
    conf = {pair.key: pair.value for pair in elastic.rdzv_conf or ()}
    # For a command that names c10d and bounds of its own. On one machine every agent takes itself for the host.
    conf = {LAST_CALL: str(LAST_CALL_S), "is_host": "0" if rank else "1", **conf}
    meeting_port = elastic.rdzv_port if elastic.rdzv_host and elastic.rdzv_port else port
    return {
        # With a shared store a late agent waits for an address that nobody tells it (seen in torch 2.13).
        UNSHARED_STORE: "1",
        "PET_RDZV_BACKEND": backend,
        "PET_RDZV_ENDPOINT": f"{elastic.rdzv_host or _ADDRESS}:{meeting_port}",
        "PET_RDZV_ID": rdzv_id,
        "PET_RDZV_CONF": ",".join(f"{key}={value}" for key, value in conf.items()),
        # c10d ranks agents by their addresses, compared as texts.
        "PET_LOCAL_ADDR": f"127.101.{100 + rank // 100}.{100 + rank % 100}",
        "PET_MAX_RESTARTS": "0",
    }


def _text(lines: Sequence[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def _script(shown: Sequence[str]) -> str:
    return _text(["#!/bin/sh", *(f"echo {line}" for line in shown)])
