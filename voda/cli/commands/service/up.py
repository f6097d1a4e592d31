"""`voda up`: turns this machine into an elastic training cluster."""

import os
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from voda.cli.command_group import command
from voda.cli.options import (
    EXEC_IDLE_S,
    EXEC_TIME_S,
    ExecIdleOption,
    ExecTimeOption,
    MachinePoolOption,
    SlotsOption,
    VerboseOption,
    provided,
)
from voda.cli.parameters import Option

if TYPE_CHECKING:
    from voda.app.machine import MachineOptions
    from voda.app.service import MachineService
    from voda.domain.settings import SettingsPatch


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineArguments:
    home: Annotated[Path | None, Option("--home", help="Folder of log, jobs, tokens; default VODA_HOME.")] = None
    log: Annotated[
        str, Option("--log", help="A path, or a postgresql:// or nats:// URL.", default_text="voda.db in --home")
    ] = ""
    slots: SlotsOption = None
    pool: MachinePoolOption = "default"
    metrics_dir: Annotated[
        Path | None, Option("--metrics-dir", help="Read epochs from the CSV files that jobs write there.")
    ] = None
    pids_limit: Annotated[
        int,
        Option("--pids-limit", metavar="N", help="Processes and threads of a replica, at most; 0 = no limit."),
    ] = 16_384
    gpu_sharing: Annotated[
        Literal["auto", "plain", "off"],
        Option(
            "--gpu-sharing", metavar="auto|plain|off", help="Parts of GPUs: where MPS runs, also without it, or never."
        ),
    ] = "auto"
    halt_on_exit: Annotated[
        bool, Option("--halt-on-exit", help="Halt the jobs on exit; they resume with the next voda up.")
    ] = False


def first_settings() -> Any:
    """Return an option for each setting that is asked for at the start."""
    from voda.cli.setting_options import setting_options

    return setting_options("policy", "placer", "ratelimit_s", panel="Decisions", of_up=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessArguments:
    PANEL: ClassVar = "Access"

    host: Annotated[str, Option("--host", help="Address to listen on.")] = "127.0.0.1"
    port: Annotated[int, Option("--port", help="0 = any that is free.")] = 8470
    tls_cert: Annotated[Path | None, Option("--tls-cert", help="PEM file.")] = None
    tls_key: Annotated[Path | None, Option("--tls-key", help="PEM file.")] = None
    socket: Annotated[Path | None, Option("--socket", help="Of a multi-user voda; default /run/voda/voda.sock.")] = None
    single_user: Annotated[
        bool, Option("--single-user", help="As root: run all jobs as root, and offer no socket.")
    ] = False
    no_tokens: Annotated[
        bool,
        Option("--no-tokens", help="Anybody who reaches the port may do anything."),
    ] = False
    open_to_everybody: Annotated[bool, Option("--open-to-everybody", help="Allow --no-tokens beyond loopback.")] = False
    jobs_per_user: Annotated[int, Option("--jobs-per-user", help="Most live jobs of one user.")] = 1_000
    log_bytes_per_user: Annotated[
        int,
        Option(
            "--log-bytes-per-user",
            metavar="SIZE",
            help="What a user may write to the log within an hour; 0 = no limit.",
            is_size=True,
        ),
    ] = 250_000_000
    live_bytes_per_user: Annotated[
        int,
        Option(
            "--live-bytes-per-user",
            metavar="SIZE",
            help="Most of a user's live jobs' manifests; of all, at most eight times as much; 0 = no limit.",
            is_size=True,
        ),
    ] = 32_000_000
    exec_idle: ExecIdleOption = EXEC_IDLE_S
    exec_time: ExecTimeOption = EXEC_TIME_S


@command("up")
def up(
    machine: MachineArguments,
    decisions: first_settings,  # type: ignore[valid-type]  # made of the settings' record
    access: AccessArguments,
    verbose: VerboseOption = False,
) -> None:
    """Turn this machine into an elastic training cluster.

    Finds the GPUs (or offers CPU slots), opens the log, and serves the API until
    you stop it. Jobs keep training when it stops, even by kill -9; the next
    `voda up` takes them over.

    As root it serves all users of the machine: they ask at a socket, without
    a token, and their jobs run as them (unless --single-user).

    \b
    Examples:
      voda up
      voda up --slots 4 --policy elastic-srjf
      voda up --host 0.0.0.0 --tls-cert cert.pem --tls-key key.pem
      sudo voda up --home /var/lib/voda --socket /run/voda/voda.sock
    """
    from voda.app.service import running
    from voda.cli.execution import configure_logging, run_until_signal

    options, left = _options(machine, provided(**asdict(decisions)), access), 0
    configure_logging(verbose=verbose)

    def ending(service: "MachineService") -> None:
        nonlocal left
        left = len(service.live_jobs())
        more = ", halting the jobs; a second signal stops it at once" if options.halts_on_exit else ""
        print(f"voda: ending{more}", file=sys.stderr)

    hint = "Ctrl-C stops it; jobs keep training, and the next voda up takes them over."
    if not run_until_signal(running(options), hint, ending):
        _say_who_goes_on("stopped at once")
    elif left and not options.halts_on_exit:
        _say_who_goes_on("1 job is live" if left == 1 else f"{left} jobs are live")


def _options(machine: MachineArguments, settings: "SettingsPatch", access: AccessArguments) -> "MachineOptions":
    from voda import config
    from voda.app.machine import MachineOptions
    from voda.cli.execution import with_voda_on_path
    from voda.domain.errors import InvalidInput

    if (access.tls_cert is None) != (access.tls_key is None):
        raise InvalidInput("--tls-cert and --tls-key go together: give both, or neither")
    # Without tokens every user would be admin.
    is_multi_user = os.geteuid() == 0 and not access.single_user and not access.no_tokens
    return MachineOptions(
        home=machine.home or config.home_folder(),
        environment=with_voda_on_path(config.environment(), is_multi_user=is_multi_user),
        log=machine.log,
        host=access.host,
        port=access.port,
        slots=machine.slots,
        pool=machine.pool,
        settings=settings,
        is_multi_user=is_multi_user,
        socket=access.socket,
        has_tokens=not access.no_tokens,
        is_open_on_purpose=access.open_to_everybody,
        tls=(access.tls_cert, access.tls_key) if access.tls_cert and access.tls_key else None,
        metrics_folder=machine.metrics_dir,
        pids_limit=machine.pids_limit,
        jobs_per_user=access.jobs_per_user,
        log_bytes_per_user=access.log_bytes_per_user,
        live_bytes_per_user=access.live_bytes_per_user,
        command_idle_s=access.exec_idle,
        command_s=access.exec_time,
        gpu_sharing=machine.gpu_sharing,
        halts_on_exit=machine.halt_on_exit,
    )


def _say_who_goes_on(state: str) -> None:
    print(f"voda: {state}; running jobs keep training, and the next `voda up` takes them over", file=sys.stderr)
