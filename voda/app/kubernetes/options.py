"""What `voda serve --cluster kubernetes` can be told: a settings file, which a ConfigMap may hold.

Rule: a field that is unknown or of the wrong type is refused with its path; what is left out has the default here.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct, field

from voda.domain.errors import InvalidInput
from voda.manifests.yaml_text import read

_MOST_BYTES: Final = 1_000_000


class _Part(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Base of all parts."""


class Listen(_Part, frozen=True):
    """Where the API listens."""

    host: str = "0.0.0.0"  # inside a pod, whose network decides who gets there
    port: int = 8470


class AccessSettings(_Part, frozen=True):
    """Who may call."""

    folder: str = ""
    """Of a mounted Secret with `secret`, `admin.token` and, if there are users, `tokens.json`; empty: made in home."""


class ClusterSettings(_Part, frozen=True):
    """Which nodes and jobs are voda's."""

    pool_label: str = "vodascheduler/accelerator"
    default_pool: str = "default"
    """Of nodes with GPUs and without the label; empty: they are left alone."""
    gpu_resource: str = "nvidia.com/gpu"
    tolerated_taints: tuple[str, ...] = ("nvidia.com/gpu", "amd.com/gpu")
    namespaces: tuple[str, ...] = ()
    """Where jobs are looked for; empty: everywhere."""
    relist_seconds: float = 600.0


class LeaderSettings(_Part, frozen=True):
    """The Lease by which one of several replicas leads."""

    namespace: str = ""
    """Empty: the pod's own."""
    name: str = "voda"
    lease_seconds: float = 15.0
    renew_seconds: float = 10.0
    retry_seconds: float = 2.0


class ApiSettings(_Part, frozen=True):
    """What job pods are told of the API."""

    url: str = ""
    """Empty: the Service's name in the pod's namespace."""


class PoolSettings(_Part, frozen=True):
    """What a pool is set to at the start; later changes by the API are kept until this says something else again."""

    policy: str | None = None
    placer: str | None = None
    ratelimit_seconds: float | None = None


class KubernetesOptions(_Part, frozen=True):
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


class Surroundings(Struct, frozen=True, kw_only=True):
    """What the command line and the environment add to the settings file."""

    identity: str
    """Of this replica; the pod's name."""
    namespace: str
    """Of this replica's pod."""
    kubeconfig: Path | None = None
    """None: as the pod's service account."""
    context: str = ""
    has_tokens: bool = True


def read_options(path: Path) -> KubernetesOptions:
    """Return what a settings file says.

    Raises:
        InvalidInput: it cannot be read, or says what cannot be meant.
    """
    try:
        text = path.read_bytes()[:_MOST_BYTES].decode()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"the settings file {path} cannot be read: {error}") from error
    if not text.strip():
        return KubernetesOptions()
    try:
        return checked(msgspec.convert(read(text), KubernetesOptions))
    except (msgspec.ValidationError, InvalidInput) as error:
        raise InvalidInput(f"settings file {path}: {error}") from error


def checked(options: KubernetesOptions) -> KubernetesOptions:
    """Return the options unchanged, or raise InvalidInput naming the first that cannot be meant."""
    leader = options.leader
    if not 0 < leader.retry_seconds < leader.renew_seconds < leader.lease_seconds <= 3_600:
        raise InvalidInput(
            "leader: expected 0 < retrySeconds < renewSeconds < leaseSeconds <= 3600, got"
            f" {leader.retry_seconds:g}, {leader.renew_seconds:g} and {leader.lease_seconds:g}"
        )
    if not 0 <= options.listen.port <= 65_535:
        raise InvalidInput(f"listen.port is {options.listen.port}, expected 0 (any) to 65535")
    if not options.cluster.pool_label or not options.cluster.gpu_resource:
        raise InvalidInput("cluster: poolLabel and gpuResource are names, expected none of them to be empty")
    if options.cluster.relist_seconds < 1:
        raise InvalidInput(f"cluster.relistSeconds is {options.cluster.relist_seconds:g}, expected 1 or more")
    for name, pool in options.pools.items():
        if pool.ratelimit_seconds is not None and not 0 <= pool.ratelimit_seconds <= 86_400:
            raise InvalidInput(f"pools.{name}.ratelimitSeconds is {pool.ratelimit_seconds:g}, expected 0 to 86400")
    return options
