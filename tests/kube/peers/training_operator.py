"""training-operator, which makes the pods of PyTorchJobs, and of MPIJobs v1; with its validating webhook."""

from collections.abc import Mapping, Sequence
from typing import ClassVar

from tests.kube.control_plane import ControlPlane
from tests.kube.peers.webhook_operator import WebhookOperator
from tests.ports import free_port


class TrainingOperator(WebhookOperator):
    """See the module.

    Args:
        plane: whose API server it speaks to.
        schemes: kinds that it looks after, in small letters.
    """

    namespace: ClassVar[str] = "kubeflow"
    secret: ClassVar[str] = "training-operator-webhook-cert"
    service: ClassVar[str] = "training-operator"
    webhooks: ClassVar[Mapping[str, str]] = {
        "validatingwebhookconfigurations": "validator.training-operator.kubeflow.org"
    }

    def __init__(self, plane: ControlPlane, schemes: Sequence[str] = ("pytorchjob",)) -> None:
        super().__init__(plane, "training-operator", "training-operator-1.9.3")
        self._schemes = schemes

    def flags(self) -> Sequence[str]:
        """See WebhookOperator."""
        ports = {"metrics-bind": free_port(), "health-probe-bind": free_port()}
        return [
            f"--webhook-server-port={self.webhook_port}",
            *(f"--{name}-address=127.0.0.1:{port}" for name, port in ports.items()),
            *(f"--enable-scheme={scheme}" for scheme in self._schemes),
            "--controller-threads=4",
            "--kube-api-qps=100",
            "--kube-api-burst=200",
        ]
