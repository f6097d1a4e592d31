"""`voda serve`: schedules a cluster, as one of several replicas."""

import logging
import os
import signal
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from voda.app.kubernetes.options import KubernetesOptions, Surroundings
    from voda.app.kubernetes.service import Service

_HELP = """
Schedule the MPIJobs and PyTorchJobs of a Kubernetes cluster.

Of several replicas one leads; all of them serve the API. What is not given
here is as the settings file says, or has its default. Jobs train on when it
ends, even by kill -9; the next leader takes them over.

\b
Examples:
  voda serve --config /etc/voda/voda.yaml
  voda serve --kubeconfig ~/.kube/config --home ./voda --host 127.0.0.1
"""


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("serve", help=_HELP)(serve)


def serve(  # noqa: PLR0913 - a command's options are its parameters
    cluster: Annotated[str, typer.Option("--cluster", help="What is scheduled: kubernetes.")] = "kubernetes",
    config: Annotated[Path | None, typer.Option("--config", help="Settings file, YAML: docs/settings.md.")] = None,
    kubeconfig: Annotated[
        Path | None, typer.Option("--kubeconfig", help="Else KUBECONFIG, else the pod's own, else ~/.kube/config.")
    ] = None,
    context: Annotated[str, typer.Option("--context", help="Of the kubeconfig; by default its current one.")] = "",
    home: Annotated[Path | None, typer.Option("--home", help="Folder of log and tokens; else as configured.")] = None,
    log: Annotated[
        str, typer.Option("--log", help="A path or postgresql:// URL; else as configured, else VODA_LOG.")
    ] = "",
    host: Annotated[str, typer.Option("--host", help="Address to listen on; else as configured.")] = "",
    port: Annotated[int | None, typer.Option("--port", help="0 = any that is free; else as configured.")] = None,
    no_tokens: Annotated[
        bool, typer.Option("--no-tokens", help="Whoever reaches the port may do anything; on loopback only.")
    ] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Tell what is decided and done.")] = False,
) -> None:
    """Run one replica."""
    import uvloop
    from msgspec.structs import replace

    from voda import config as environment
    from voda.app.kubernetes.options import KubernetesOptions, Surroundings
    from voda.app.kubernetes.settings_file import checked, read_options
    from voda.app.options import is_loopback
    from voda.cluster.kubernetes.access import namespace
    from voda.domain.errors import InvalidInput

    if cluster != "kubernetes":
        raise InvalidInput(f"--cluster {cluster}: expected kubernetes; for this machine alone there is `voda up`")
    options = read_options(config) if config is not None else KubernetesOptions()
    options = checked(
        replace(
            options,
            log=log or options.log or environment.log(),
            home=str(home or options.home),
            listen=replace(
                options.listen,
                host=host or options.listen.host,
                port=options.listen.port if port is None else port,
            ),
        )
    )
    if no_tokens and not is_loopback(options.listen.host):
        raise InvalidInput(
            f"--no-tokens lets whoever reaches {options.listen.host} do anything: add --host 127.0.0.1, or leave it out"
        )
    logging.basicConfig(
        level=logging.INFO if verbose else logging.WARNING, format="%(asctime)s %(levelname)s %(name)s %(message)s"
    )
    logging.getLogger("alembic").setLevel(logging.WARNING)
    pod, kubeconfig = environment.pod(), kubeconfig or environment.kubeconfig()
    of_context = namespace(kubeconfig, context) if kubeconfig is not None else ""
    around = Surroundings(
        # Never the same twice, or a restarted replica would take its former self for itself.
        identity=f"{pod.name or socket.gethostname()}_{os.urandom(4).hex()}",
        namespace=pod.namespace or of_context or "default",
        kubeconfig=kubeconfig,
        context=context,
        has_tokens=not no_tokens,
    )
    uvloop.run(_run(options, around))


async def _run(options: "KubernetesOptions", around: "Surroundings") -> None:
    import asyncio

    from voda.app.failures import single
    from voda.app.kubernetes.service import running

    told_to_end, this = asyncio.Event(), asyncio.current_task()
    assert this is not None, "run by uvloop.run"

    def be_told() -> None:
        if told_to_end.is_set():
            this.cancel()
        told_to_end.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, be_told)
    try:
        async with running(options, around) as service:
            _greet(service)
            await told_to_end.wait()
            print("voda: handing over; jobs train on", file=sys.stderr)
    except BaseExceptionGroup as failures:
        raise single(failures) from failures
    except asyncio.CancelledError:
        print("voda: ended at once; another replica takes over when the lease expires", file=sys.stderr)


def _greet(service: "Service") -> None:
    from rich.console import Console

    from voda import __version__

    console = Console(highlight=False, soft_wrap=True)
    console.print(f"[bold]voda {__version__}[/bold] serves {service.url}")
    for line in service.described():
        console.print(f"  {line}", markup=False)
    console.print("Ctrl-C hands over to another replica; jobs train on.")
