"""`voda up`: turns this machine into an elastic training cluster."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from voda.cli.options import command

if TYPE_CHECKING:
    from voda.app.machine import MachineOptions
    from voda.app.service import MachineService

_ACCESS = "Access"
_DECISIONS = "Decisions"


@command("up")
def up(  # noqa: PLR0913 - a command's options are its parameters
    home: Annotated[Path | None, typer.Option("--home", help="Folder of log, jobs, tokens; default VODA_HOME.")] = None,
    log: Annotated[str, typer.Option("--log", help="The log: a path, or a postgresql:// or nats:// URL.")] = "",
    slots: Annotated[int | None, typer.Option("--slots", help="CPU slots to offer; by default one per core.")] = None,
    pool: Annotated[str, typer.Option("--pool", help="Name of the pool of this machine.")] = "default",
    policy: Annotated[
        str | None,
        typer.Option("--policy", rich_help_panel=_DECISIONS, help="See voda policies."),
    ] = None,
    placer: Annotated[
        str | None, typer.Option("--placer", rich_help_panel=_DECISIONS, help="Where workers go: steady or packed.")
    ] = None,
    ratelimit: Annotated[
        float | None, typer.Option("--ratelimit", rich_help_panel=_DECISIONS, help="Seconds between plans, at least.")
    ] = None,
    host: Annotated[str, typer.Option("--host", rich_help_panel=_ACCESS, help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", rich_help_panel=_ACCESS, help="0 = any that is free.")] = 8470,
    tls_cert: Annotated[Path | None, typer.Option("--tls-cert", rich_help_panel=_ACCESS, help="PEM file.")] = None,
    tls_key: Annotated[Path | None, typer.Option("--tls-key", rich_help_panel=_ACCESS, help="PEM file.")] = None,
    no_tokens: Annotated[
        bool, typer.Option("--no-tokens", rich_help_panel=_ACCESS, help="Anybody who reaches the port may do anything.")
    ] = False,
    open_to_everybody: Annotated[
        bool, typer.Option("--open-to-everybody", rich_help_panel=_ACCESS, help="Allow --no-tokens beyond loopback.")
    ] = False,
    jobs_per_user: Annotated[
        int, typer.Option("--jobs-per-user", rich_help_panel=_ACCESS, help="Most live jobs of one user.")
    ] = 1_000,
    metrics_dir: Annotated[
        Path | None, typer.Option("--metrics-dir", help="Read epochs from the CSV files that jobs write there.")
    ] = None,
    halt_on_exit: Annotated[
        bool, typer.Option("--halt-on-exit", help="Halt the jobs on exit; they resume with the next voda up.")
    ] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Log what voda decides and does.")] = False,
) -> None:
    """Turn this machine into an elastic training cluster.

    Finds the GPUs (or offers CPU slots), opens the log, and serves the API until
    you stop it. Jobs keep training when it stops, even by kill -9; the next
    `voda up` takes them over.

    \b
    Examples:
      voda up
      voda up --slots 4 --policy elastic-srjf
      voda up --host 0.0.0.0 --tls-cert cert.pem --tls-key key.pem
    """
    import uvloop

    from voda import config
    from voda.app.machine import MachineOptions
    from voda.cli.execution import configure_logging, with_voda_on_path
    from voda.domain.errors import InvalidInput

    if (tls_cert is None) != (tls_key is None):
        raise InvalidInput("--tls-cert and --tls-key go together: give both, or neither")
    configure_logging(verbose=verbose)
    options = MachineOptions(
        home=home or config.home_folder(),
        environment=with_voda_on_path(config.environment()),
        log=log,
        host=host,
        port=port,
        slots=slots,
        pool=pool,
        policy=policy,
        placer=placer,
        ratelimit_s=ratelimit,
        has_tokens=not no_tokens,
        is_open_on_purpose=open_to_everybody,
        tls=(tls_cert, tls_key) if tls_cert and tls_key else None,
        metrics_folder=metrics_dir,
        jobs_per_user=jobs_per_user,
        halts_on_exit=halt_on_exit,
    )
    # uvloop answers a third more requests than asyncio's own loop.
    uvloop.run(_run(options))


async def _run(options: "MachineOptions") -> None:
    from voda.app.service import running
    from voda.cli.execution import run_until_signal

    left = 0

    def ending(service: "MachineService") -> None:
        nonlocal left
        left = len(service.live_jobs())
        more = ", halting the jobs; a second signal stops it at once" if options.halts_on_exit else ""
        print(f"voda: ending{more}", file=sys.stderr)

    if not await run_until_signal(running(options), _greet, ending):
        print(
            "voda: stopped at once; running jobs keep training, and the next `voda up` takes them over", file=sys.stderr
        )
    elif left and not options.halts_on_exit:
        words = "1 job is live" if left == 1 else f"{left} jobs are live"
        print(f"voda: {words}; running jobs keep training, and the next `voda up` takes them over", file=sys.stderr)


def _greet(service: "MachineService") -> None:
    from rich.console import Console

    from voda import __version__

    console = Console(highlight=False, soft_wrap=True)
    console.print(f"[bold]voda {__version__}[/bold] serves {service.url}")
    for line in service.description():
        console.print(f"  {line}", markup=False)
    console.print("Ctrl-C stops it; jobs keep training, and the next voda up takes them over.")
