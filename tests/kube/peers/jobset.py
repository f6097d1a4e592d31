"""The controller of JobSets, which makes Jobs of them; with its webhooks, which set defaults and refuse changes."""

from collections.abc import Mapping, Sequence
from typing import ClassVar

import yaml

from tests.kube.control_plane import ControlPlane
from tests.kube.peers.webhook_operator import WebhookOperator
from tests.ports import free_port

OF_JOBSET = "jobset.sigs.k8s.io/jobset-name"


class JobSetController(WebhookOperator):
    """The controller of JobSets."""

    namespace: ClassVar[str] = "jobset-system"
    secret: ClassVar[str] = "jobset-webhook-server-cert"
    service: ClassVar[str] = "jobset-webhook-service"
    webhooks: ClassVar[Mapping[str, str]] = {
        "mutatingwebhookconfigurations": "jobset-mutating-webhook-configuration",
        "validatingwebhookconfigurations": "jobset-validating-webhook-configuration",
    }

    def __init__(self, plane: ControlPlane) -> None:
        super().__init__(plane, "jobset", "jobset-0.10.1")

    def flags(self) -> Sequence[str]:
        """See WebhookOperator."""
        config = {
            "apiVersion": "config.jobset.x-k8s.io/v1alpha1",
            "kind": "Configuration",
            "leaderElection": {"leaderElect": False},
            "webhook": {"port": self.webhook_port},
            "health": {"healthProbeBindAddress": f"127.0.0.1:{free_port()}"},
            "metrics": {"bindAddress": f"127.0.0.1:{free_port()}"},
            "internalCertManagement": {
                "enable": True,
                "webhookServiceName": self.service,
                "webhookSecretName": self.secret,
            },
        }
        (self.folder / "config.yaml").write_text(yaml.safe_dump(config))
        return [f"--config={self.folder / 'config.yaml'}"]

    def limit_to_own_pods(self, webhook: dict[str, object]) -> None:
        """See WebhookOperator."""
        webhook["objectSelector"] = {"matchExpressions": [{"key": OF_JOBSET, "operator": "Exists"}]}
