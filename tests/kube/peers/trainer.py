"""Kubeflow Trainer's controller, which makes JobSets of TrainJobs; with its validating webhook."""

from collections.abc import Mapping, Sequence
from typing import ClassVar

from tests.kube.control_plane import ControlPlane
from tests.kube.peers.webhook_operator import WebhookOperator
from tests.ports import free_port


class Trainer(WebhookOperator):
    """See the module."""

    namespace: ClassVar[str] = "kubeflow-system"
    secret: ClassVar[str] = "kubeflow-trainer-webhook-cert"
    service: ClassVar[str] = "kubeflow-trainer-controller-manager"
    webhooks: ClassVar[Mapping[str, str]] = {"validatingwebhookconfigurations": "validator.trainer.kubeflow.org"}

    def __init__(self, plane: ControlPlane) -> None:
        super().__init__(plane, "trainer", "trainer-2.0.0")

    def flags(self) -> Sequence[str]:
        """See WebhookOperator."""
        return [
            f"--webhook-server-port={self.webhook_port}",
            f"--health-probe-bind-address=127.0.0.1:{free_port()}",
            "--metrics-bind-address=0",
        ]
