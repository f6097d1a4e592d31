"""training-operator, which makes the pods of PyTorchJobs, and of MPIJobs v1; with its validating webhook.

Rule: its certificate reaches it as in a cluster, through its Secret; who mounts Secrets there copies the files here.
"""

import base64
import json
import socket
from collections.abc import Sequence

import yaml

from tests.kube.assets import manifests, peer
from tests.kube.control_plane import ControlPlane
from tests.kube.peers.program import APART, Program
from tests.ports import free_port

NAMESPACE = "kubeflow"
_SECRET = "training-operator-webhook-cert"
_SERVICE = "training-operator"
_CERTIFICATES = "/tmp/k8s-webhook-server/serving-certs"
"""Where it looks for its certificate, whatever its flags say."""
_WEBHOOKS = "validator.training-operator.kubeflow.org"


class TrainingOperator(Program):
    """See the module; the CustomResourceDefinitions of its schemes are served already.

    Args:
        plane: whose API server it speaks to.
        schemes: kinds that it looks after, in small letters.
    """

    def __init__(self, plane: ControlPlane, schemes: Sequence[str] = ("pytorchjob",)) -> None:
        super().__init__(plane, "training-operator")
        self._schemes = schemes
        self._webhook_port = free_port()

    def start(self) -> None:
        """Start it, and return when its webhook answers."""
        self._prepare()
        ports = {"metrics-bind": free_port(), "health-probe-bind": free_port()}
        self.run(
            [
                *(*APART, "--folder", self.folder / "certificates", _CERTIFICATES, peer("training-operator")),
                f"--kubeconfig={self.plane.kubeconfig()}",
                f"--webhook-server-port={self._webhook_port}",
                *(f"--{name}-address=127.0.0.1:{port}" for name, port in ports.items()),
                *(f"--enable-scheme={scheme}" for scheme in self._schemes),
                "--controller-threads=4",
                "--kube-api-qps=100",
                "--kube-api-burst=200",
            ],
            {"POD_NAMESPACE": NAMESPACE},
        )
        self.plane.wait_until(self._serves_webhook, "training-operator serves its webhook")

    def _prepare(self) -> None:
        """Create what its manifests create, with the addresses of this machine."""
        (self.folder / "certificates").mkdir(exist_ok=True)
        self.plane.create_namespace(NAMESPACE)
        home = f"/api/v1/namespaces/{NAMESPACE}"
        self.plane.create(f"{home}/secrets", {"kind": "Secret", "apiVersion": "v1", "metadata": {"name": _SECRET}})
        port = {"name": "webhook-server", "port": self._webhook_port}
        service = {"type": "ExternalName", "externalName": "localhost", "ports": [port]}
        metadata = {"name": _SERVICE}
        self.plane.create(
            f"{home}/services", {"kind": "Service", "apiVersion": "v1", "metadata": metadata, "spec": service}
        )
        published = manifests() / "training-operator-1.9.3" / "webhook" / "manifests.yaml"
        webhooks = yaml.safe_load(published.read_text())
        webhooks["metadata"]["name"] = _WEBHOOKS
        for webhook in webhooks["webhooks"]:
            here = {"namespace": NAMESPACE, "name": _SERVICE, "port": self._webhook_port}
            webhook["clientConfig"]["service"].update(here)
        self.plane.create("/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations", webhooks)

    def _serves_webhook(self) -> bool:
        """Copy the certificate to where the operator looks for it, once it is there."""
        self.check()
        data = json.loads(self.plane.get(f"/api/v1/namespaces/{NAMESPACE}/secrets/{_SECRET}")).get("data", {})
        # It goes on as soon as it sees the last of them.
        for name in ("ca.crt", "ca.key", "tls.key", "tls.crt") if "tls.crt" in data else ():
            draft = self.folder / name
            draft.write_bytes(base64.b64decode(data[name]))
            draft.replace(self.folder / "certificates" / name)
        return "tls.crt" in data and self._is_listening()

    def _is_listening(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self._webhook_port)) == 0
