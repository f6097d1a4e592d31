"""What `voda serve --cluster kubernetes` can be told: a settings file, which a ConfigMap may hold.

Rule: what is left out has the default here; docs/settings.md tells every field.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from msgspec import Struct, field


class _SettingsPart(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Base of all parts."""


class Listen(_SettingsPart, frozen=True):
    """Where the API listens."""

    host: str = "0.0.0.0"  # inside a pod, whose network decides who gets there
    port: int = 8470


class AccessSettings(_SettingsPart, frozen=True):
    """Who may call."""

    folder: str = ""
    """Of a mounted Secret with `secret`, `admin.token` and, if there are users, `tokens.json`; empty: made in home."""


class ClusterSettings(_SettingsPart, frozen=True):
    """Which nodes and jobs are voda's."""

    pool_label: str = "vodascheduler/accelerator"
    default_pool: str = "default"
    """Of nodes with GPUs and without the label; empty: they are left alone."""
    gpu_resource: str = "nvidia.com/gpu"
    tolerated_taints: tuple[str, ...] = ("nvidia.com/gpu", "amd.com/gpu")
    namespaces: tuple[str, ...] = ()
    """Where jobs are looked for; empty: everywhere."""
    relist_seconds: float = 600.0


class LeaderSettings(_SettingsPart, frozen=True):
    """How one of several replicas comes to lead."""

    election: Literal["lease", "log"] = "lease"
    """By a Lease of the cluster, or on the log's own store, for replicas outside of the cluster."""
    namespace: str = ""
    """Of the Lease; empty: the pod's own."""
    name: str = "voda"
    lease_seconds: float | None = None
    """None, as for those that follow: as suits the election."""
    renew_seconds: float | None = None
    retry_seconds: float | None = None


class ApiSettings(_SettingsPart, frozen=True):
    """What job pods are told of the API."""

    url: str = ""
    """Empty: the Service's name in the pod's namespace."""


class PoolSettings(_SettingsPart, frozen=True):
    """What a pool is set to whenever a replica takes the lead; what is left out stays as the log has it."""

    policy: str | None = None
    placer: str | None = None
    ratelimit_seconds: float | None = None


class KubernetesOptions(_SettingsPart, frozen=True):
    """The whole settings file."""

    log: str = ""
    home: str = "/var/lib/voda"
    listen: Listen = Listen()
    access: AccessSettings = AccessSettings()
    cluster: ClusterSettings = ClusterSettings()
    leader: LeaderSettings = LeaderSettings()
    api: ApiSettings = ApiSettings()
    metrics_folder: str = ""
    jobs_per_user: int = 1_000
    pools: Mapping[str, PoolSettings] = field(default_factory=dict)


class ReplicaContext(Struct, frozen=True, kw_only=True):
    """What the command line and the environment add to the settings file."""

    identity: str
    """Of this replica; the pod's name."""
    namespace: str
    """Of this replica's pod."""
    kubeconfig: Path | None = None
    """None: as the pod's service account."""
    context: str = ""
    has_tokens: bool = True
