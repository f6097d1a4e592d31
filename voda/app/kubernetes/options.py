"""The settings file of `voda serve --cluster kubernetes`, which a ConfigMap may hold, and what its parts are used for.

Rule: a field that is left out has the default here; docs/settings.md describes every field.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from msgspec import Struct, field

from voda.app.election import LOG_TIMEOUTS, ElectionTimeouts
from voda.cluster.kubernetes.kinds.base import Site
from voda.cluster.kubernetes.state.nodes import PoolRule
from voda.domain.state import ParameterValue


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
    """Of nodes with GPUs and without the label; empty: voda leaves them alone."""
    gpu_resource: str = "nvidia.com/gpu"
    tolerated_taints: tuple[str, ...] = ("nvidia.com/gpu", "amd.com/gpu")
    namespaces: tuple[str, ...] = ()
    """Where voda looks for jobs; empty: everywhere."""
    relist_seconds: float = 600.0

    def pool_rule(self) -> PoolRule:
        """Return which nodes form which pools."""
        return PoolRule(
            label=self.pool_label,
            resource=self.gpu_resource,
            default_pool=self.default_pool,
            tolerated_taints=self.tolerated_taints,
        )

    def site(self) -> Site:
        """Return what of the cluster manifests have to fit."""
        return Site(gpu_resource=self.gpu_resource, tolerated_taints=self.tolerated_taints)


class LeaderSettings(_SettingsPart, frozen=True):
    """How one of several replicas comes to lead."""

    election: Literal["lease", "log"] = "lease"
    """By a Lease of the cluster, or on the log's own store, for replicas outside of the cluster."""
    namespace: str = ""
    """Of the Lease; empty: the pod's own."""
    name: str = "voda"
    lease_seconds: float | None = None
    """None, here and in the next two: as suits the election."""
    renew_seconds: float | None = None
    retry_seconds: float | None = None

    def timings(self) -> ElectionTimeouts:
        """Return the spans of the election.

        Raises:
            ValueError: they would let two replicas lead.
        """
        usual = LOG_TIMEOUTS if self.election == "log" else ElectionTimeouts()
        lease_s, renew_s, retry_s = self.lease_seconds, self.renew_seconds, self.retry_seconds
        return ElectionTimeouts(
            duration_s=usual.duration_s if lease_s is None else lease_s,
            renew_deadline_s=usual.renew_deadline_s if renew_s is None else renew_s,
            retry_s=usual.retry_s if retry_s is None else retry_s,
        )


class ApiSettings(_SettingsPart, frozen=True):
    """Where job pods reach the API."""

    url: str = ""
    """Empty: the Service's name in the pod's namespace."""


class PoolSettings(_SettingsPart, frozen=True):
    """What a pool is set to whenever a replica takes the lead; what is left out stays as the log has it."""

    policy: str | None = None
    placer: str | None = None
    ratelimit_seconds: float | None = None
    parameters: Mapping[str, Mapping[str, ParameterValue]] = {}
    """policy -> parameter -> value."""


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
    """None: the pod's service account."""
    context: str = ""
    has_tokens: bool = True
