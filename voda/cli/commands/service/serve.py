"""`voda serve`: schedules a cluster, or this machine, as one of several replicas."""

import os
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple, Protocol

import typer

from voda.cli.options import command

if TYPE_CHECKING:
    from collections.abc import Iterable
    from contextlib import AbstractAsyncContextManager

    from voda.app.kubernetes.options import KubernetesOptions

_MACHINE = "This machine (--cluster machine)"
_KUBERNETES = "Kubernetes (--cluster kubernetes)"


class Served(Protocol):
    """A service that was started."""

    url: str

    def description(self) -> "Iterable[str]":
        """Return what a user wants to know at the start, line by line."""
        ...


@command("serve")
def serve(  # noqa: PLR0913 - a command's options are its parameters
    cluster: Annotated[
        str, typer.Option("--cluster", help="What is scheduled: kubernetes, or the processes of this machine.")
    ] = "kubernetes",
    config: Annotated[
        Path | None,
        typer.Option("--config", rich_help_panel=_KUBERNETES, help="Settings file, YAML: docs/settings.md."),
    ] = None,
    kubeconfig: Annotated[
        Path | None,
        typer.Option(
            "--kubeconfig",
            rich_help_panel=_KUBERNETES,
            help="Else KUBECONFIG, else the pod's own, else ~/.kube/config.",
        ),
    ] = None,
    context: Annotated[
        str,
        typer.Option("--context", rich_help_panel=_KUBERNETES, help="Of the kubeconfig; by default its current one."),
    ] = "",
    slots: Annotated[
        int | None,
        typer.Option("--slots", rich_help_panel=_MACHINE, help="CPU slots to offer; by default one per core."),
    ] = None,
    pool: Annotated[
        str, typer.Option("--pool", rich_help_panel=_MACHINE, help="Name of the pool of this machine.")
    ] = "default",
    api_url: Annotated[
        str,
        typer.Option(
            "--api-url",
            rich_help_panel=_MACHINE,
            help="Where jobs report to: a load balancer; by default this replica.",
        ),
    ] = "",
    home: Annotated[Path | None, typer.Option("--home", help="Folder of log and tokens; else as configured.")] = None,
    log: Annotated[
        str, typer.Option("--log", help="A path, postgresql:// or nats:// URL; else as configured, else VODA_LOG.")
    ] = "",
    host: Annotated[str, typer.Option("--host", help="Address to listen on; else as configured.")] = "",
    port: Annotated[int | None, typer.Option("--port", help="0 = any that is free; else as configured.")] = None,
    no_tokens: Annotated[
        bool, typer.Option("--no-tokens", help="Whoever reaches the port may do anything; on loopback only.")
    ] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Tell what is decided and done.")] = False,
) -> None:
    """Schedule the MPIJobs and PyTorchJobs of a Kubernetes cluster, or of this
    machine, as one of several replicas.

    One replica leads; all of them serve the API. What is not given here is as the
    settings file says, or has its default. Jobs train on when it ends, even by
    kill -9; the next leader takes them over.

    \b
    Examples:
      voda serve --config /etc/voda/voda.yaml
      voda serve --kubeconfig ~/.kube/config --home ./voda --host 127.0.0.1
      voda serve --cluster machine --log postgresql://voda@db/voda --port 8471
    """
    from voda.cli.execution import configure_logging
    from voda.domain.errors import InvalidInput

    configure_logging(verbose=verbose)
    shared = Shared(home, log, host, port, not no_tokens)
    match cluster:
        case "kubernetes":
            if slots is not None or pool != "default" or api_url:
                raise InvalidInput("--slots, --pool and --api-url are of --cluster machine; see docs/settings.md")
            _on_kubernetes(shared, config, kubeconfig, context)
        case "machine":
            if config or kubeconfig or context:
                raise InvalidInput("--config, --kubeconfig and --context are of --cluster kubernetes")
            _on_this_machine(shared, slots, pool, api_url)
        case _:
            raise InvalidInput(
                f"--cluster {cluster}: expected kubernetes, or machine; one process for this machine is `voda up`"
            )


class Shared(NamedTuple):
    """Options of every cluster; empty or None = as configured."""

    home: Path | None
    log: str
    host: str
    port: int | None
    has_tokens: bool


def _on_kubernetes(shared: Shared, config: Path | None, kubeconfig: Path | None, context: str) -> None:
    from voda import config as environment
    from voda.app.kubernetes.options import ReplicaContext
    from voda.app.kubernetes.replica import running
    from voda.cluster.kubernetes.client.credentials import namespace

    options = _settings(shared, config)
    pod, kubeconfig = environment.pod(), kubeconfig or environment.kubeconfig()
    of_context = namespace(kubeconfig, context) if kubeconfig is not None else ""
    around = ReplicaContext(
        identity=_identity(pod.name),
        namespace=pod.namespace or of_context or "default",
        kubeconfig=kubeconfig,
        context=context,
        has_tokens=shared.has_tokens,
    )
    _run(running(options, around))


def _settings(shared: Shared, config: Path | None) -> "KubernetesOptions":
    from msgspec.structs import replace

    from voda import config as environment
    from voda.app.kubernetes.options import KubernetesOptions, checked, read_options
    from voda.app.machine import is_loopback
    from voda.domain.errors import InvalidInput

    options = read_options(config) if config is not None else KubernetesOptions()
    listen = replace(
        options.listen,
        host=shared.host or options.listen.host,
        port=options.listen.port if shared.port is None else shared.port,
    )
    if not shared.has_tokens and not is_loopback(listen.host):
        raise InvalidInput(
            f"--no-tokens lets whoever reaches {listen.host} do anything: add --host 127.0.0.1, or leave it out"
        )
    log, home = shared.log or options.log or environment.log(), str(shared.home or options.home)
    return checked(replace(options, log=log, home=home, listen=listen))


def _on_this_machine(shared: Shared, slots: int | None, pool: str, api_url: str) -> None:
    from voda import config as environment
    from voda.app.machine import DEFAULT_PORT, MachineOptions
    from voda.app.service import replica
    from voda.cli.execution import with_voda_on_path

    options = MachineOptions(
        home=shared.home or environment.home_folder(),
        environment=with_voda_on_path(environment.environment()),
        log=shared.log or environment.log(),
        host=shared.host or "127.0.0.1",
        port=DEFAULT_PORT if shared.port is None else shared.port,
        slots=slots,
        pool=pool,
        api_url=api_url,
        has_tokens=shared.has_tokens,
    )
    _run(replica(options, _identity()))


def _identity(name: str = "") -> str:
    # Never the same twice, or a restarted replica would take its former self for itself.
    return f"{name or socket.gethostname()}_{os.urandom(4).hex()}"


def _run(service: "AbstractAsyncContextManager[Served]") -> None:
    import uvloop

    uvloop.run(_until_told(service))


async def _until_told(service: "AbstractAsyncContextManager[Served]") -> None:
    from voda.cli.execution import run_until_signal

    def ending(running: Served) -> None:
        print("voda: handing over; jobs train on", file=sys.stderr)

    if not await run_until_signal(service, _greet, ending):
        print("voda: ended at once; another replica takes over when the lease expires", file=sys.stderr)


def _greet(service: Served) -> None:
    from rich.console import Console

    from voda import __version__

    console = Console(highlight=False, soft_wrap=True)
    console.print(f"[bold]voda {__version__}[/bold] serves {service.url}")
    for line in service.description():
        console.print(f"  {line}", markup=False)
    console.print("Ctrl-C hands over to another replica; jobs train on.")
