"""`voda serve`: schedules a Kubernetes cluster, as one of several replicas."""

import os
import socket
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

from voda.cli.command_group import command
from voda.cli.execution import RunningService, configure_logging, run_until_signal
from voda.cli.options import VerboseOption
from voda.cli.parameters import Option
from voda.domain.errors import InvalidInput

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from voda.app.kubernetes.options import KubernetesOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class KubernetesArguments:
    PANEL: ClassVar = "Kubernetes"

    config: Annotated[Path | None, Option("--config", help="Settings file, YAML: docs/settings.md.")] = None
    kubeconfig: Annotated[
        Path | None, Option("--kubeconfig", help="Else KUBECONFIG, else the pod's own, else ~/.kube/config.")
    ] = None
    context: Annotated[str, Option("--context", help="Of the kubeconfig; by default its current one.")] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaArguments:
    """Empty or None = as configured."""

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
    kubernetes: KubernetesArguments,
    replica: ReplicaArguments,
    verbose: VerboseOption = False,
) -> None:
    """Schedule the plain Jobs, JobSets, TrainJobs, MPIJobs and PyTorchJobs of a
    Kubernetes cluster, as one of several replicas. For this machine: voda up.

    One replica leads; all of them serve the API. What is not given here is as the
    settings file says, or has its default. Jobs train on when it ends, even by
    kill -9; the next leader takes them over.

    \b
    Examples:
      voda serve --config /etc/voda/voda.yaml
      voda serve --kubeconfig ~/.kube/config --home ./voda --host 127.0.0.1
    """
    configure_logging(verbose=verbose)
    _run(_on_kubernetes(replica, kubernetes))


def _on_kubernetes(
    replica: ReplicaArguments, cluster: KubernetesArguments
) -> "AbstractAsyncContextManager[RunningService]":
    from voda import config

    config.require("kubernetes")
    from voda.app.kubernetes.options import ReplicaContext
    from voda.app.kubernetes.replica import running
    from voda.kubernetes_client.credentials import namespace

    options = _settings(replica, cluster.config)
    pod, kubeconfig = config.pod(), cluster.kubeconfig or config.kubeconfig()
    of_context = namespace(kubeconfig, cluster.context) if kubeconfig is not None else ""
    around = ReplicaContext(
        identity=_identity(pod.name),
        namespace=pod.namespace or of_context or "default",
        own_namespace=pod.namespace,
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


def _identity(name: str = "") -> str:
    # Never the same twice, or a restarted replica would take its former self for itself.
    return f"{name or socket.gethostname()}_{os.urandom(4).hex()}"


def _run(service: "AbstractAsyncContextManager[RunningService]") -> None:
    def ending(_: RunningService) -> None:
        print("voda: handing over; jobs train on", file=sys.stderr)

    if not run_until_signal(service, "Ctrl-C hands over to another replica; jobs train on.", ending):
        print("voda: ended at once; another replica takes over when the lease expires", file=sys.stderr)
