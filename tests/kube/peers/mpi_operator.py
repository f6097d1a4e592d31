"""mpi-operator, which makes launcher and workers of MPIJobs v2beta1.

It listens on port 8080 whatever its flags say, so it has a network of its own.
"""

from tests.kube.assets import peer
from tests.kube.control_plane import ControlPlane
from tests.kube.peers.program import APART, Program

NAMESPACE = "mpi-operator"


class MpiOperator(Program):
    """See the module; its CustomResourceDefinition is served already."""

    def __init__(self, plane: ControlPlane) -> None:
        super().__init__(plane, "mpi-operator")

    def start(self) -> None:
        """Start it."""
        self.plane.create_namespace(NAMESPACE)
        self.run(
            [
                *(*APART, "--port", str(self.plane.port), peer("mpi-operator")),
                f"-kubeConfig={self.plane.kubeconfig()}",
                f"-lock-namespace={NAMESPACE}",
                "-kube-api-qps=100",
                "-kube-api-burst=200",
            ]
        )
