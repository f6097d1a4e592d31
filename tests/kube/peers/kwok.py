"""kwok: the kubelets of all nodes, which renew their leases; see `stages` for what it does to pods."""

import yaml

from tests.kube.assets import peer
from tests.kube.control_plane import ControlPlane
from tests.kube.peers.program import Program
from tests.kube.peers.stages import KUBELET, all_stages
from tests.ports import free_port


class Kwok(Program):
    """See the module."""

    def __init__(self, plane: ControlPlane) -> None:
        super().__init__(plane, "kwok")
        self.forwards: dict[int, int] = {}
        """Port of any pod -> that of this machine to which it is forwarded; heeded at the next start."""
        self.port = 0
        """Where it listens, as kubelets do."""

    def start(self) -> None:
        """Start it."""
        stages = self.folder / "stages.yaml"
        stages.write_text("---\n".join([all_stages(), *self._forwarding()]))
        self.port = port = free_port()
        self.run(
            [
                peer("kwok"),
                f"--kubeconfig={self.plane.kubeconfig()}",
                f"--config={stages}",
                f"--manage-nodes-with-label-selector={KUBELET}!=lost",
                # Each is renewed four times as often.
                "--node-lease-duration-seconds=12",
                f"--server-address=127.0.0.1:{port}",
                *(self._reachable_at(port) if self.forwards else ()),
            ]
        )

    def _reachable_at(self, port: int) -> list[str]:
        """Return the flags by which the API server asks it as the kubelet of nodes with an address of this machine."""
        certificate = self.plane.certificate
        key = certificate.with_suffix(".key")
        at = ["--node-ip=127.0.0.1", f"--node-port={port}"]
        return [*at, f"--tls-cert-file={certificate}", f"--tls-private-key-file={key}"]

    def _forwarding(self) -> list[str]:
        if not self.forwards:
            return []
        forwards = [
            {"ports": [port], "target": {"port": here, "address": "127.0.0.1"}} for port, here in self.forwards.items()
        ]
        kind = {"apiVersion": "kwok.x-k8s.io/v1alpha1", "kind": "ClusterPortForward", "metadata": {"name": "tests"}}
        return [yaml.safe_dump({**kind, "spec": {"forwards": forwards}})]
