"""Reaches the voda of a Kubernetes cluster through `kubectl port-forward`, for as long as a command takes.

Rules: kubectl does what the kubeconfig asks for (certificates, exec plug-ins, proxies); the API server's own proxy will
not do, because it keeps the header with voda's token to itself. The forwarding ends with the command, also if that is
killed.
"""

import json
import shutil
import subprocess
import threading
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import IO, Any, Final, NamedTuple

from voda import config
from voda.cli.options import ServerOptions, is_kubectl_plugin
from voda.client.errors import ServerUnreachable
from voda.client.target import target
from voda.domain.errors import InvalidInput, NotFound

_SELECTOR: Final = "app.kubernetes.io/part-of=voda,app.kubernetes.io/component=scheduler"
"""Of the Service that the chart makes."""
_USUAL_NAMESPACE: Final = "voda-system"
_ANSWER_S: Final = 15.0
_READY_S: Final = 30.0
_ENDED_S: Final = 5.0
_AWAY: Final = ("The connection to the server", "Unable to connect to the server")
"""How kubectl begins to say that it does not reach the API server."""
_READY: Final = "Forwarding from 127.0.0.1:"
# `read` ends with this process, whatever ends it; kubectl alone holds the output, so that it ends with kubectl.
_WHILE_WE_LIVE: Final = '"$@" & exec >&- 2>&-; read -r _; kill "$!"; wait'


class _VodaService(NamedTuple):
    namespace: str
    name: str
    port: int


def is_here(where: ServerOptions) -> bool:
    """Return whether the server is on this machine; where none is, whichever is started here."""
    try:
        return not _is_forwarded(where) and target(where).is_here
    except (NotFound, InvalidInput):
        # To be told by whoever asks it.
        return True


def _is_forwarded(where: ServerOptions) -> bool:
    is_named = where.server or where.home or config.server_url()
    return bool(where.context) or (not is_named and is_kubectl_plugin())


@contextmanager
def reached(where: ServerOptions) -> Iterator[ServerOptions]:
    """Yield the options with the server's address: as they are, or of the voda of a Kubernetes cluster.

    That is asked where a context is named, and under the name `kubectl voda` where no other server is.

    Raises:
        NotFound: there is no kubectl, or no voda in the cluster.
        InvalidInput: kubectl refuses, or several vodas are there.
        ServerUnreachable: the cluster does not answer.
    """
    if not _is_forwarded(where):
        yield where
        return
    if where.server or where.home:
        raise InvalidInput("--context names a cluster's voda: leave out --server and --home")
    kubectl = _Kubectl(where.context)
    service = _service(kubectl)
    with kubectl.forwarding(service) as url:
        yield replace(where, server=url, token=where.token or config.token() or _admin_token(kubectl, service))


class _Kubectl:
    def __init__(self, context: str) -> None:
        program = shutil.which("kubectl")
        if program is None:
            raise NotFound("there is no kubectl on the PATH, by which voda reaches the cluster: name it with --server")
        self._command = (program, *(("--context", context) if context else ()))

    def ask(self, *arguments: str) -> Any:
        """Return what kubectl prints as JSON; InvalidInput: it refuses, ServerUnreachable: it has no answer in time."""
        command = [*self._command, *arguments, "-o", "json", f"--request-timeout={_ANSWER_S:.0f}s"]
        try:
            done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=2 * _ANSWER_S)
        except subprocess.TimeoutExpired as error:
            raise ServerUnreachable(f"kubectl {' '.join(arguments)} does not answer in time") from error
        if done.returncode:
            why = _last_line(done.stderr)
            is_away = why.startswith(_AWAY)
            raise (ServerUnreachable if is_away else InvalidInput)(f"kubectl {' '.join(arguments)}: {why}")
        return json.loads(done.stdout)

    @contextmanager
    def forwarding(self, service: _VodaService) -> Iterator[str]:
        """Yield the URL at which a Service is reached from here."""
        arguments = ("port-forward", "-n", service.namespace, f"service/{service.name}", f":{service.port}")
        process = subprocess.Popen(
            ["sh", "-c", _WHILE_WE_LIVE, "sh", *self._command, *arguments, "--address=127.0.0.1"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            # An interruption is the command's alone: the shell would end by it before kubectl does.
            start_new_session=True,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        late = threading.Timer(_READY_S, process.stdin.close)
        late.daemon = True
        late.start()
        try:
            first = process.stdout.readline().strip()
            late.cancel()
            if not first.startswith(_READY):
                why = _last_line(first + process.stdout.read()) if first else "it does not answer in time"
                raise ServerUnreachable(f"kubectl {' '.join(arguments)}: {why}")
            # It tells of every connection, and would wait for somebody to read that.
            threading.Thread(target=_discard, args=(process.stdout,), daemon=True).start()
            yield f"http://127.0.0.1:{first.removeprefix(_READY).split(' ')[0]}"
        finally:
            late.cancel()
            process.stdin.close()
            with suppress(subprocess.TimeoutExpired):
                process.wait(_ENDED_S)


def _service(kubectl: _Kubectl) -> _VodaService:
    named = config.kubernetes_namespace()
    try:
        found = kubectl.ask("get", "services", *(("-n", named) if named else ("-A",)), "-l", _SELECTOR)
    except InvalidInput:
        # Few may list the Services of all namespaces.
        if named:
            raise
        found = kubectl.ask("get", "services", "-n", _USUAL_NAMESPACE, "-l", _SELECTOR)
    services = [
        _VodaService(each["metadata"]["namespace"], each["metadata"]["name"], each["spec"]["ports"][0]["port"])
        for each in found["items"]
    ]
    if not services:
        raise NotFound(
            f"no Service of voda is in {named or 'any namespace'} of the cluster (label {_SELECTOR}); install voda, or"
            " name it with --server"
        )
    if len(services) > 1:
        names = ", ".join(f"{each.namespace}/{each.name}" for each in services)
        raise InvalidInput(f"several vodas are in the cluster ({names}): name a namespace with VODA_NAMESPACE")
    return services[0]


def _admin_token(kubectl: _Kubectl, service: _VodaService) -> str:
    """Return the admin token for who may read it; others name theirs by VODA_TOKEN, and are told so by the server."""
    try:
        secret = kubectl.ask("get", "secret", "-n", service.namespace, f"{service.name}-access")
        return b64decode(secret["data"]["admin.token"]).decode()
    except (InvalidInput, KeyError, ValueError):
        return ""


def _last_line(text: str) -> str:
    return next((line.strip()[:300] for line in reversed(text.splitlines()) if line.strip()), "it gives no reason")


def _discard(stream: IO[str]) -> None:
    for _ in stream:
        pass
