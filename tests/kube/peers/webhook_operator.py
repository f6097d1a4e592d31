"""An operator with webhooks: it makes its certificate itself, and goes on once that lies in its folder.

Rule: its certificate reaches it as in a cluster, through its Secret; who mounts Secrets there copies the files here.
"""

import base64
import json
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

import yaml

from tests.kube.assets import manifests, peer
from tests.kube.control_plane import ControlPlane
from tests.kube.peers.program import APART, Program
from tests.ports import free_port

_CERTIFICATES = "/tmp/k8s-webhook-server/serving-certs"
"""Where all of them look for their certificate, whatever their flags say."""
_REGISTRATION = "/apis/admissionregistration.k8s.io/v1"


class WebhookOperator(Program):
    """See the module; the CustomResourceDefinitions of its kinds are served already.

    Args:
        plane: whose API server it speaks to.
        name: of the binary.
        release: folder of its manifests.
    """

    namespace: ClassVar[str]
    secret: ClassVar[str]
    service: ClassVar[str]
    webhooks: ClassVar[Mapping[str, str]]
    """Plural of each of its webhook configurations -> its name."""

    def __init__(self, plane: ControlPlane, name: str, release: str) -> None:
        super().__init__(plane, name)
        self._release = release
        self.webhook_port = free_port()

    def flags(self) -> Sequence[str]:
        """Return its flags besides its kubeconfig."""
        raise NotImplementedError

    def start(self) -> None:
        """Start it, and return when its webhook answers."""
        self._prepare()
        self.run(
            [
                *(*APART, "--folder", self.folder / "certificates", _CERTIFICATES, peer(self.name)),
                f"--kubeconfig={self.plane.kubeconfig()}",
                *self.flags(),
            ],
            # Whatever TMPDIR says here.
            {"POD_NAMESPACE": self.namespace, "TMPDIR": "/tmp"},
        )
        self.plane.wait_until(self._serves_webhook, f"{self.name} serves its webhook")

    def _prepare(self) -> None:
        """Create what its manifests create, with the addresses of this machine."""
        (self.folder / "certificates").mkdir(exist_ok=True)
        self.plane.create_namespace(self.namespace)
        home = f"/api/v1/namespaces/{self.namespace}"
        secret = {"kind": "Secret", "apiVersion": "v1", "metadata": {"name": self.secret}}
        self.plane.create(f"{home}/secrets", secret)
        port = {"name": "webhook-server", "port": self.webhook_port}
        spec = {"type": "ExternalName", "externalName": "localhost", "ports": [port]}
        service = {"kind": "Service", "apiVersion": "v1", "metadata": {"name": self.service}, "spec": spec}
        self.plane.create(f"{home}/services", service)
        published = (manifests() / self._release / "webhook" / "manifests.yaml").read_text()
        for body in filter(None, yaml.safe_load_all(published)):
            plural = f"{body['kind'].lower()}s"
            body["metadata"]["name"] = self.webhooks[plural]
            for webhook in body["webhooks"]:
                here = {"namespace": self.namespace, "name": self.service, "port": self.webhook_port}
                webhook["clientConfig"]["service"].update(here)
                if "pods" in webhook["rules"][0]["resources"]:
                    self.limit_to_own_pods(webhook)
            self.plane.create(f"{_REGISTRATION}/{plural}", body)

    def limit_to_own_pods(self, webhook: dict[str, object]) -> None:
        """Leave the pods of others alone, as a patch of its manifests does."""

    def _serves_webhook(self) -> bool:
        """Copy the certificate to where the operator looks for it, once it is there."""
        self.check()
        found = json.loads(self.plane.get(f"/api/v1/namespaces/{self.namespace}/secrets/{self.secret}"))
        data = found.get("data") or {}
        # It goes on as soon as it sees the last of them. One that is replaced while it begins to watch it may end it:
        # fsnotify 1.7.0 panics.
        for name in ("ca.crt", "ca.key", "tls.key", "tls.crt") if "tls.crt" in data else ():
            _put(self.folder / "certificates" / name, base64.b64decode(data[name]))
        return "tls.crt" in data and self._is_listening()

    def _is_listening(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.webhook_port)) == 0


def _put(file: Path, content: bytes) -> None:
    """Have a file with this content, all of it at once; one that has it is left alone."""
    if not (file.exists() and file.read_bytes() == content):
        draft = file.parent.parent / file.name
        draft.write_bytes(content)
        draft.replace(file)
