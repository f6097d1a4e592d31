"""What a kubelet says of the containers of a pod, trimmed to the fields that voda reads."""

from msgspec import field

from voda.kubernetes_client.metadata import KubeRecord


class Terminated(KubeRecord, frozen=True):
    exit_code: int = 0
    reason: str = ""
    message: str = ""
    finished_at: str = ""


class Waiting(KubeRecord, frozen=True):
    reason: str = ""
    """ContainerCreating, ImagePullBackOff, CrashLoopBackOff, ..."""


class ContainerState(KubeRecord, frozen=True):
    waiting: Waiting | None = None
    terminated: Terminated | None = None


class ResourceHealth(KubeRecord, frozen=True):
    """One device that a container has."""

    resource_id: str = field(default="", name="resourceID")
    health: str = ""
    """Healthy, Unhealthy or Unknown."""


class ResourceStatus(KubeRecord, frozen=True):
    name: str = ""
    """`nvidia.com/gpu`; of a claim `claim:NAME/REQUEST`."""
    resources: tuple[ResourceHealth, ...] = ()


class ContainerStatus(KubeRecord, frozen=True):
    name: str = ""
    restart_count: int = 0
    state: ContainerState = ContainerState()
    last_state: ContainerState = ContainerState()
    allocated_resources_status: tuple[ResourceStatus, ...] = ()
