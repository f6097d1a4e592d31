"""`voda serve`: schedules a cluster, or this machine, as one of several replicas."""

import os
import socket
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

from voda.cli.command_group import command
from voda.cli.execution import RunningService, configure_logging, run_until_signal, with_voda_on_path
from voda.cli.options import (
    EXEC_IDLE_S,
    EXEC_TIME_S,
    ExecIdleOption,
    ExecTimeOption,
    MachinePoolOption,
    SlotsOption,
    VerboseOption,
)
from voda.cli.parameters import Option
from voda.domain.errors import InvalidInput

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from voda.app.kubernetes.options import KubernetesOptions
    from voda.app.machine import MachineOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class KubernetesArguments:
    PANEL: ClassVar = "Kubernetes (--cluster kubernetes)"

    config: Annotated[Path | None, Option("--config", help="Settings file, YAML: docs/settings.md.")] = None
    kubeconfig: Annotated[
        Path | None, Option("--kubeconfig", help="Else KUBECONFIG, else the pod's own, else ~/.kube/config.")
    ] = None
    context: Annotated[str, Option("--context", help="Of the kubeconfig; by default its current one.")] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineClusterArguments:
    PANEL: ClassVar = "This machine (--cluster machine)"

    slots: SlotsOption = None
    pool: MachinePoolOption = "default"
    api_url: Annotated[
        str, Option("--api-url", help="Where jobs report to: a load balancer; by default this replica.")
    ] = ""
    exec_idle: ExecIdleOption = EXEC_IDLE_S
    exec_time: ExecTimeOption = EXEC_TIME_S


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaArguments:
    """Options of every cluster; empty or None = as configured."""

    home: Annotated[Path | None, Option("--home", help="Folder of log and tokens; else as configured.")] = None
    log: Annotated[
        str, Option("--log", help="A path, postgresql:// or nats:// URL; else as configured, else VODA_LOG.")
    ] = ""
    host: Annotated[str, Option("--host", help="Address to listen on; else as configured.")] = ""
    port: Annotated[int | None, Option("--port", help="0 = any that is free; else as configured.")] = None
    no_tokens: Annotated[
        bool, Option("--no-tokens", help="Whoever reaches the port may do anything; on loopback only.")
    ] = False


@command("serve")
def serve(
    *,
    cluster: Annotated[
        str, Option("--cluster", help="What is scheduled: kubernetes, or the processes of this machine.")
    ] = "kubernetes",
    kubernetes: KubernetesArguments,
    machine: MachineClusterArguments,
    replica: ReplicaArguments,
    verbose: VerboseOption = False,
) -> None:
    """Schedule the plain Jobs, JobSets, TrainJobs, MPIJobs and PyTorchJobs of a
    Kubernetes cluster, or the jobs of this machine, as one of several replicas.

    One replica leads; all of them serve the API. What is not given here is as the
    settings file says, or has its default. Jobs train on when it ends, even by
    kill -9; the next leader takes them over.

    \b
    Examples:
      voda serve --config /etc/voda/voda.yaml
      voda serve --kubeconfig ~/.kube/config --home ./voda --host 127.0.0.1
      voda serve --cluster machine --log postgresql://voda@db/voda --port 8471
    """
    configure_logging(verbose=verbose)
    match cluster:
        case "kubernetes":
            if machine != MachineClusterArguments():
                raise InvalidInput(
                    "--slots, --pool, --api-url, --exec-idle and --exec-time are of --cluster machine; see"
                    " docs/settings.md"
                )
            _run(_on_kubernetes(replica, kubernetes))
        case "machine":
            if kubernetes != KubernetesArguments():
                raise InvalidInput("--config, --kubeconfig and --context are of --cluster kubernetes")
            _run(_on_this_machine(replica, machine))
        case _:
            raise InvalidInput(
                f"--cluster {cluster}: expected kubernetes, or machine; one process for this machine is `voda up`"
            )


def _on_kubernetes(
    replica: ReplicaArguments, cluster: KubernetesArguments
) -> "AbstractAsyncContextManager[RunningService]":
    from voda import config
    from voda.extras import require

    require("kubernetes")
    from voda.app.kubernetes.options import ReplicaContext
    from voda.app.kubernetes.replica import running
    from voda.kubernetes_client.credentials import namespace

    options = _settings(replica, cluster.config)
    pod, kubeconfig = config.pod(), cluster.kubeconfig or config.kubeconfig()
    of_context = namespace(kubeconfig, cluster.context) if kubeconfig is not None else ""
    around = ReplicaContext(
        identity=_identity(pod.name),
        namespace=pod.namespace or of_context or "default",
        kubeconfig=kubeconfig,
        context=cluster.context,
        has_tokens=not replica.no_tokens,
    )
    return running(options, around)


def _settings(replica: ReplicaArguments, file: Path | None) -> "KubernetesOptions":
    from msgspec.structs import replace

    from voda import config
    from voda.app.kubernetes.options import KubernetesOptions, checked, read_options
    from voda.app.machine import is_loopback

    options = read_options(file) if file is not None else KubernetesOptions()
    listen = replace(
        options.listen,
        host=replica.host or options.listen.host,
        port=options.listen.port if replica.port is None else replica.port,
    )
    if replica.no_tokens and not is_loopback(listen.host):
        raise InvalidInput(
            f"--no-tokens lets whoever reaches {listen.host} do anything: add --host 127.0.0.1, or leave it out"
        )
    log, home = replica.log or options.log or config.log(), str(replica.home or options.home)
    return checked(replace(options, log=log, home=home, listen=listen))


def _on_this_machine(
    replica: ReplicaArguments, machine: MachineClusterArguments
) -> "AbstractAsyncContextManager[RunningService]":
    from voda.app import service as app

    return app.replica(machine_options(replica, machine), _identity())


def machine_options(replica: ReplicaArguments, machine: MachineClusterArguments) -> "MachineOptions":
    """Return what the arguments make of this machine."""
    from voda import config
    from voda.app.machine import DEFAULT_PORT, MachineOptions

    return MachineOptions(
        home=replica.home or config.home_folder(),
        environment=with_voda_on_path(config.environment()),
        log=replica.log or config.log(),
        host=replica.host or "127.0.0.1",
        port=DEFAULT_PORT if replica.port is None else replica.port,
        slots=machine.slots,
        pool=machine.pool,
        api_url=machine.api_url,
        command_idle_s=machine.exec_idle,
        command_s=machine.exec_time,
        has_tokens=not replica.no_tokens,
    )


def _identity(name: str = "") -> str:
    # Never the same twice, or a restarted replica would take its former self for itself.
    return f"{name or socket.gethostname()}_{os.urandom(4).hex()}"


def _run(service: "AbstractAsyncContextManager[RunningService]") -> None:
    def ending(_: RunningService) -> None:
        print("voda: handing over; jobs train on", file=sys.stderr)

    if not run_until_signal(service, "Ctrl-C hands over to another replica; jobs train on.", ending):
        print("voda: ended at once; another replica takes over when the lease expires", file=sys.stderr)
