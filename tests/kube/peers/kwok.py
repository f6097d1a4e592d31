"""kwok: the kubelets of all nodes, which renew their leases; see `stages` for what it does to pods."""

from tests.kube.assets import peer
from tests.kube.control_plane import ControlPlane
from tests.kube.peers.program import Program
from tests.kube.peers.stages import KUBELET, all_stages
from tests.ports import free_port


class Kwok(Program):
    """See the module."""

    def __init__(self, plane: ControlPlane) -> None:
        super().__init__(plane, "kwok")

    def start(self) -> None:
        """Start it."""
        stages = self.folder / "stages.yaml"
        stages.write_text(all_stages())
        self.run(
            [
                peer("kwok"),
                f"--kubeconfig={self.plane.kubeconfig()}",
                f"--config={stages}",
                f"--manage-nodes-with-label-selector={KUBELET}!=lost",
                # Each is renewed four times as often.
                "--node-lease-duration-seconds=12",
                f"--server-address=127.0.0.1:{free_port()}",
            ]
        )
