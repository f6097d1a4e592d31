"""What `voda up` runs on: its options, and the devices of this machine, of which it makes one local cluster per pool.

Rules: the first contradiction between options is refused in one sentence. GPUs make one pool per model, because a job's
speed on one says little about its speed on another; without a GPU, CPU slots make one pool.
"""

import os
import platform
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from ipaddress import ip_address
from pathlib import Path

from msgspec import Struct

from voda import config
from voda.accounts import Account, Accounts
from voda.api.admission import CallerLimits
from voda.api.sockets import MOST_BYTES
from voda.app.gpu_sharing import GpuSharing, ShareAdmission
from voda.app.reachability import program_warnings
from voda.application.job_rules import LIVE_BYTES
from voda.auth.local_users import own_name
from voda.auth.tokens import ADMIN, Authenticator
from voda.auth.write_quota import DEFAULT_BYTES
from voda.clock import Clock
from voda.cluster.local.cluster import LocalCluster
from voda.cluster.local.context import LocalClusterConfig
from voda.cluster.local.devices import (
    Device,
    GpuMonitor,
    cpu_slots,
    find_gpus,
    gpu_pools,
    open_driver,
    share_devices,
)
from voda.cluster.local.isolation.cgroups import DEVICES, Cgroups, group_prefix
from voda.cluster.local.isolation.job_environment import clean_environment
from voda.cluster.local.isolation.limits import role_limits
from voda.cluster.local.isolation.mps import mps_folder
from voda.domain.errors import InvalidInput
from voda.domain.gpus import Gpus
from voda.domain.job import JobSpec
from voda.domain.node import Node
from voda.domain.settings import Settings, SettingsPatch
from voda.kinds.base import FieldWarning
from voda.manifests.local_warnings import local_warnings, refuse_unrunnable
from voda.manifests.parse import ParsedManifest
from voda.manifests.programs import nice_annotation
from voda.metrics import NO_TELEMETRY, Telemetry
from voda.process_table import most_processes

DEFAULT_PORT = 8470
Specs = Callable[[str, str], JobSpec | None]
"""(pool, job id) -> the spec of a live job."""


class MachineOptions(Struct, frozen=True, kw_only=True):
    home: Path
    environment: Mapping[str, str]
    """Of the processes that it starts; their own variables are laid over it."""
    log: str = ""
    """Path or URL of the log; by default voda.db in `home`."""
    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    """0 = any that is free."""
    slots: int | None = None
    """CPU slots where there is no GPU; by default one per core."""
    pool: str = "default"
    settings: SettingsPatch = {}
    """Of the pool, to change at the start."""
    is_multi_user: bool = False
    """Whether users of this machine ask over a socket, told by their accounts, and jobs run as their users."""
    socket: Path | None = None
    """Of a multi-user service; None = where `socket_path` says."""
    has_tokens: bool = True
    is_open_on_purpose: bool = False
    """Whether the operator explicitly allows listening beyond this machine without tokens."""
    tls: tuple[Path, Path] | None = None
    """Certificate and key, PEM."""
    metrics_folder: Path | None = None
    """Of CSV files that jobs write."""
    jobs_per_user: int = 1_000
    log_bytes_per_user: int = DEFAULT_BYTES
    live_bytes_per_user: int = LIVE_BYTES
    """What a user may write to the log within an hour; 0 = no limit."""
    command_idle_s: float = 14_400.0
    command_s: float = 86_400.0
    """Of commands beside replicas, as CallerLimits has them."""
    pids_limit: int = 16_384
    """Most processes and threads of a replica, where the kernel can be told; 0: as many as it wants."""
    gpu_sharing: GpuSharing = "auto"
    """Whether jobs that ask for a part of a GPU get it: auto = where NVIDIA MPS runs, plain = also where nothing
    divides a GPU, off = each gets one alone."""
    halts_on_exit: bool = False
    """Whether jobs are halted when the service ends; otherwise they train on, and the next start takes them over."""

    def caller_limits(self) -> CallerLimits:
        """Return how much one caller may ask for."""
        return CallerLimits(command_idle_s=self.command_idle_s, command_s=self.command_s)


def refuse_contradictions(options: MachineOptions) -> None:
    """Raise InvalidInput, one sentence that names the option, where options contradict or are out of bounds."""
    if not options.has_tokens and not is_loopback(options.host) and not options.is_open_on_purpose:
        raise InvalidInput(
            f"--host {options.host} without tokens lets everybody on the network run programs here: leave out"
            " --no-tokens, or add --open-to-everybody if that is what you want"
        )
    if options.is_multi_user and not options.has_tokens:
        raise InvalidInput("--no-tokens makes every user admin, so it needs --single-user")
    if options.socket is not None and not options.is_multi_user:
        raise InvalidInput(
            f"--socket {options.socket} is for all users of this machine: run voda up as root, without --single-user"
            " and --no-tokens, or leave it out"
        )
    if options.slots is not None and not 1 <= options.slots <= 4_096:
        raise InvalidInput(f"--slots is {options.slots}, expected 1 to 4096")
    if not 0 <= options.port <= 65_535:
        raise InvalidInput(f"--port is {options.port}, expected 0 (any) to 65535")
    if not 0 <= options.pids_limit <= 4_194_304:
        raise InvalidInput(f"--pids-limit is {options.pids_limit}, expected 0 (none) to 4194304")
    if options.jobs_per_user < 1:
        raise InvalidInput(f"--jobs-per-user is {options.jobs_per_user}, expected 1 or more")
    if options.log_bytes_per_user < 0:
        raise InvalidInput(f"--log-bytes-per-user is {options.log_bytes_per_user}, expected 0 (no limit) or more")
    if options.live_bytes_per_user < 0:
        raise InvalidInput(f"--live-bytes-per-user is {options.live_bytes_per_user}, expected 0 (no limit) or more")


def socket_path(options: MachineOptions) -> Path | None:
    """Return where users of this machine ask; None where there is no such socket."""
    if not options.is_multi_user or options.socket is not None:
        return options.socket
    path = _usual_socket(options)
    return path if len(os.fsencode(path)) <= MOST_BYTES else None


async def authenticator(options: MachineOptions, clock: Clock) -> Authenticator:
    """Return what tells callers by their tokens; where one user runs all jobs, the admin has that account's name."""
    admin = ADMIN if options.is_multi_user else await own_name(Accounts(), os.geteuid())
    has_tokens = options.has_tokens
    return Authenticator.open(options.home, clock, admin=admin) if has_tokens else Authenticator.none(admin=admin)


def users_line(options: MachineOptions) -> str:
    """Return a sentence on who runs jobs, and so on what roles promise."""
    who = "root" if os.geteuid() == 0 else "you"
    if not options.has_tokens:
        return f"single-user: all jobs run as {who}, and anybody who reaches the port is admin"
    if not options.is_multi_user:
        how = "without --single-user" if who == "root" else "as root"
        return f"single-user: all jobs run as {who}, with an admin's rights; started {how}, voda keeps users apart"
    if (path := socket_path(options)) is not None:
        return f"multi-user: jobs run as their users, who ask without a token at {path}"
    return f"multi-user: jobs run as their users; {_usual_socket(options)} is too long for a socket: see --socket"


def _usual_socket(options: MachineOptions) -> Path:
    home = options.home.absolute()
    return config.MACHINE_SOCKET if home == config.MACHINE_HOME else home / "voda.sock"


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach what listens there."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def exposure_warning(host: str, *, has_tls: bool) -> str:
    """Return a sentence where others may reach what listens there and read along; empty where they cannot."""
    if has_tls or is_loopback(host):
        return ""
    return (
        f"warning: --host {host} without TLS: whoever is on the way can read tokens and manifests; use --tls-cert and"
        " --tls-key (voda up), or a proxy that speaks TLS"
    )


class Machine:
    """The devices of this machine, divided into pools."""

    def __init__(
        self, options: MachineOptions, cgroups: Cgroups | None = None, telemetry: Telemetry = NO_TELEMETRY
    ) -> None:
        self._options = options
        self._telemetry = telemetry
        self.cgroups = cgroups or Cgroups()
        self._driver = open_driver()
        found = find_gpus(self._driver, visible=options.environment.get("CUDA_VISIBLE_DEVICES"))
        if found and options.slots is not None:
            raise InvalidInput(
                f"--slots offers CPU slots, but this machine has {len(found)} GPUs: leave it out, or hide the GPUs"
                " with CUDA_VISIBLE_DEVICES="
            )
        self.pools: Mapping[str, Sequence[Device]] = self._divided(found)

    def gpu_shares(self) -> ShareAdmission:
        """Return what decides which jobs get a part of a GPU."""
        has_gpus = any(map(share_devices, self.pools.values()))
        return ShareAdmission(self._options.gpu_sharing, has_gpus=has_gpus, mps=lambda: bool(self._mps()))

    def description(self) -> Sequence[str]:
        pools = [f"pool {pool}: {_counted(devices)}" for pool, devices in self.pools.items()]
        replicas = sum(map(len, self.pools.values()))
        is_kept = "pids" in self.cgroups.controllers
        pids = pids_line(self._options.pids_limit, replicas, most_processes()) if is_kept else ()
        return [*pools, *self.gpu_shares().description(), limits_line(self.cgroups), *pids]

    def warnings(self, parsed: ParsedManifest) -> Sequence[FieldWarning]:
        """Return the fields of a manifest that plain processes ignore, and the commands that users cannot reach.

        Raises:
            InvalidField: it cannot run on one machine.
        """
        refuse_unrunnable(parsed)
        role_limits(parsed.job)
        nice_annotation(parsed.job)
        path = self._options.environment.get("PATH", "") if self._options.is_multi_user else ""
        ignored = local_warnings(parsed, self.cgroups.controllers)
        return (*ignored, *(program_warnings(parsed, path) if path else ()))

    def clusters(
        self,
        clock: Clock,
        specs: Specs,
        environment: Callable[[JobSpec], Mapping[str, str]],
        settings: Callable[[str], Settings],
        account: Callable[[JobSpec], Awaitable[Account | None]] | None = None,
    ) -> dict[str, LocalCluster]:
        """Return pool -> its cluster, not opened yet; `environment` is laid over our own for the processes of a job,
        `settings` returns those of a pool, `account` finds that of a job.
        """
        folder = self._options.home.absolute() / "jobs"
        self.cgroups.remove_empty(group_prefix(folder))
        return {
            pool: LocalCluster(
                LocalClusterConfig(
                    node=self._node(pool, devices),
                    folder=folder,
                    devices=devices,
                    clock=clock,
                    jobs=partial(specs, pool),
                    base=clean_environment(self._options.environment),
                    environment=environment,
                    settings=partial(settings, pool),
                    account=account,
                    cgroups=self.cgroups,
                    pids_limit=self._options.pids_limit or None,
                    mps=self._mps,
                    telemetry=self._telemetry,
                    health=GpuMonitor(self._driver, devices) if devices[0].is_gpu else None,
                )
            )
            for pool, devices in self.pools.items()
        }

    def _mps(self) -> str:
        # Its server has clients of one user at a time: those of others would wait until the first have ended.
        return "" if self._options.is_multi_user else mps_folder(self._options.environment)

    def _node(self, pool: str, devices: Sequence[Device]) -> Node:
        host = platform.node() or "localhost"
        model = devices[0].model if devices[0].is_gpu else "cpu"
        labels = {"voda.dev/accelerator": model, "kubernetes.io/hostname": host}
        # A node is in one pool, so a machine of several GPU models is several nodes.
        name = host if len(self.pools) == 1 else f"{host}-{pool}"
        return Node(name=name, pool=pool, gpus=Gpus(len(devices)), labels=labels, devices=share_devices(devices))

    def _divided(self, found: Sequence[Device]) -> Mapping[str, Sequence[Device]]:
        if not found:
            return {self._options.pool: cpu_slots(self._options.slots or os.cpu_count() or 1)}
        by_model = gpu_pools(found)
        return {self._options.pool: found} if len(by_model) == 1 else by_model


def limits_line(cgroups: Cgroups) -> str:
    """Return a sentence on the limits of jobs that the kernel keeps here, and on those that it does not."""
    names = {"memory": "memory", "cpu": "CPU", "pids": "processes"}
    kept = [name for controller, name in names.items() if controller in cgroups.controllers]
    missing = [name for name in names.values() if name not in kept]
    lines = [f"limits of jobs that are enforced: {', '.join(kept)}"] if kept else []
    if missing:
        lines.append(
            f"limits of jobs that are not enforced: {', '.join(missing)}, because"
            f" {cgroups.obstacle or 'this kernel offers no controller for them'}; docs/up.md says what helps"
        )
    if cgroups.gpus and DEVICES not in cgroups.controllers:
        lines.append("every job can open the files of all GPUs (refusing them takes cgroup v1)")
    return "; ".join(lines)


def pids_line(limit: int, replicas: int, most: int) -> Sequence[str]:
    """Return a sentence where so many replicas with so many processes each could take all that this machine may have;
    it is small enough where a quarter is left.
    """
    left = max(1, most * 3 // (4 * replicas))
    if 0 < limit <= left:
        return []
    each = f"{limit:,} processes and threads" if limit else "processes and threads without a limit"
    return [
        f"{each} for each of {replicas} replicas may be all {most:,} of this machine, and nobody could start another:"
        f" give --pids-limit {left}, or raise kernel.pid_max (sysctl)"
    ]


def _counted(devices: Sequence[Device]) -> str:
    count = len(devices)
    plural = "" if count == 1 else "s"
    if not devices[0].is_gpu:
        return f"{count} CPU slot{plural} (no GPU found; each counts as one GPU)"
    return f"{count} GPU{plural} ({devices[0].model})"
