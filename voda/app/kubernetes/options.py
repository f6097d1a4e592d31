"""The settings file of `voda serve`, which a ConfigMap may hold: its parts, and how it is read.

Rules: a field that is left out has the default here; docs/settings.md describes every field. An impossible setting is
refused in one sentence with the path of the first field that is wrong, before anything is opened or asked; what only
the cluster knows, such as whether a pool has nodes, is not checked.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal

import msgspec
from msgspec import Struct, field, structs

from voda.app.election import LOG_TIMEOUTS, ElectionTimeouts
from voda.application.change_settings import check_setting
from voda.application.job_rules import LIVE_BYTES
from voda.auth.write_quota import DEFAULT_BYTES
from voda.cluster.kubernetes.kinds.template import GPU_TAINTS
from voda.cluster.kubernetes.state.claim_ledger import CapacityNames
from voda.cluster.kubernetes.state.nodes import PoolRule
from voda.cluster.kubernetes.state.shared_gpus import SHARE_RESOURCES, ShareResources
from voda.domain.errors import InvalidField, InvalidInput
from voda.domain.settings import OF_ONE_MACHINE, Settings, SettingsPatch
from voda.kinds.registry import KINDS
from voda.manifests import names
from voda.manifests.yaml_text import read
from voda.operator.authorization.pod_security import Level
from voda.sharing.rating import RATERS

_MOST_BYTES: Final = 1_000_000
_LONGEST_S: Final = 86_400.0
_LONGEST_LEASE_S: Final = 3_600.0
_MOST_JOBS: Final = 1_000_000_000
_AT: Final = re.compile(r" - at `(?:key in )?\$\.?(?P<path>[^`]*)`$")
_NAME: Final = r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN: Final = re.compile(rf"(?=.{{1,253}}$){_NAME}(?:\.{_NAME})*")
_PREFIX: Final = re.compile(r"[A-Za-z0-9:_.@/#=+-]{0,200}")
_NAMESPACE: Final = re.compile(rf"(?=.{{1,63}}$){_NAME}")
_KEY: Final = re.compile(
    rf"(?:(?=[^/]{{1,253}}/){_NAME}(?:\.{_NAME})*/)?[A-Za-z0-9](?:[-_.A-Za-z0-9]{{0,61}}[A-Za-z0-9])?"
)
_FORMER: Final[Mapping[str, str]] = {
    "exec": "leave it out; on Kubernetes `kubectl exec` runs commands in the pods of jobs"
}
"""Settings that went -> what to do instead."""


POOL_FIELDS: Final[Mapping[str, str]] = {
    re.sub("_([a-z])", lambda after: after[1].upper(), re.sub("_s$", "_seconds", name)): name
    for name in Settings.__struct_fields__
    if name not in OF_ONE_MACHINE
}
"""Field of a pool in the settings file -> the setting: nodeGraceSeconds -> node_grace_s."""


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
    gpu_device_classes: tuple[str, ...] = ("gpu.nvidia.com", "gpu.amd.com", "gpu.intel.com")
    """DeviceClasses whose devices are GPUs; empty: voda reads nothing of dynamic resource allocation."""
    pool_device_attribute: str = ""
    """Of devices; its value names the pool of a node without the label."""
    tolerated_taints: tuple[str, ...] = GPU_TAINTS
    namespaces: tuple[str, ...] = ()
    """Where voda looks for jobs; empty: everywhere."""
    kinds: tuple[str, ...] = ()
    """Which kinds of jobs voda runs; empty: all."""
    relist_seconds: float = 600.0
    user_policy: bool = False
    """Whether an admission policy lets nobody write another's name into the annotation voda.dev/user; False: the user
    of an object that kubectl made is its namespace."""
    pod_security: Level = "restricted"
    """What pods that users ask for may be where their namespace has no label pod-security.kubernetes.io/enforce."""
    user_prefix: str = ""
    """Of the names by which Kubernetes knows voda's users, such as oidc:."""

    def pool_rule(self) -> PoolRule:
        return PoolRule(
            label=self.pool_label,
            resource=self.gpu_resource,
            default_pool=self.default_pool,
            tolerated_taints=self.tolerated_taints,
            device_classes=self.gpu_device_classes,
            pool_attribute=self.pool_device_attribute,
        )


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
        """Return the spans of the election; ValueError: they would let two replicas lead."""
        usual = LOG_TIMEOUTS if self.election == "log" else ElectionTimeouts()
        return ElectionTimeouts(
            duration_s=usual.duration_s if self.lease_seconds is None else self.lease_seconds,
            renew_deadline_s=usual.renew_deadline_s if self.renew_seconds is None else self.renew_seconds,
            retry_s=usual.retry_s if self.retry_seconds is None else self.retry_seconds,
        )


class ApiSettings(_SettingsPart, frozen=True):
    """Where job pods reach the API."""

    url: str = ""
    """Empty: the Service's name in the pod's namespace."""


class SharingSettings(_SettingsPart, frozen=True):
    """Which pods that ask for GPUs, or shares of them, voda places, and how."""

    enabled: bool = False
    """Whether voda is kube-scheduler's extender for those that ask by extended resources."""
    rater: str = "fgd"
    """What chooses node and GPU, of voda/sharing/rating/raters."""
    nodes_to_score: int = 100
    """So many nodes filter answers with at most, the best ones, and kube-scheduler scores no others; 0 = all."""
    core_resources: tuple[str, ...] = SHARE_RESOURCES.core
    """Names of hundredths of a GPU; a container uses one of them."""
    memory_resources: tuple[str, ...] = SHARE_RESOURCES.memory
    """Names of MiB of a GPU."""
    claims: bool = False
    """Whether voda chooses GPUs for pods that claim parts of devices of cluster.gpuDeviceClasses."""
    compute_capacity: str = CapacityNames().compute
    """Name of the capacity of devices that counts their compute; claims take parts of it."""
    memory_capacity: str = CapacityNames().memory
    """Name of the one that counts their memory."""


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
    log_bytes_per_user: int = DEFAULT_BYTES
    """What a user may write to the log within an hour by one replica; 0 = no limit."""
    live_bytes_per_user: int = LIVE_BYTES
    """Of a user's live jobs' manifests and labels; of all, at most eight times as many; 0 = no limit."""
    sharing: SharingSettings = SharingSettings()
    pools: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Pool -> what it is set to whenever a replica takes the lead, by POOL_FIELDS; the rest stays as the log has it."""

    def pool_rule(self) -> PoolRule:
        """Return which nodes form which pools, and by which resources they share GPUs."""
        names = ShareResources(core=self.sharing.core_resources, memory=self.sharing.memory_resources)
        sharing = self.sharing
        capacities = CapacityNames(compute=sharing.compute_capacity, memory=sharing.memory_capacity)
        rule = structs.replace(self.cluster.pool_rule(), share_resources=names)
        return structs.replace(rule, gpu_capacities=capacities if sharing.claims else None)

    def pool_settings(self, pool: str) -> SettingsPatch:
        """Return what a pool is set to, or raise InvalidInput naming the first impossible field."""
        patch = {}
        for key, value in self.pools.get(pool, {}).items():
            path = f"pools.{pool}.{key[:80]}"
            if key not in POOL_FIELDS:
                raise InvalidInput(f"{path} is unknown here, expected one of {', '.join(POOL_FIELDS)}")
            try:
                patch[POOL_FIELDS[key]] = check_setting(POOL_FIELDS[key], value, path)
            except InvalidField as error:
                raise InvalidInput(str(error) if str(error).startswith(path) else f"{path}: {error}") from error
        return patch


class ReplicaContext(Struct, frozen=True, kw_only=True):
    """What the command line and the environment add to the settings file."""

    identity: str
    """Of this replica; the pod's name."""
    namespace: str
    """Of this replica's pod."""
    own_namespace: str = ""
    """Of this replica's pod, where its Secrets are; empty: it runs outside of the cluster."""
    kubeconfig: Path | None = None
    """None: the pod's service account."""
    context: str = ""
    has_tokens: bool = True


def read_options(path: Path) -> KubernetesOptions:
    """Return what a settings file says, or raise InvalidInput: it cannot be read, or has an impossible setting."""
    try:
        with path.open("rb") as file:
            text = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise InvalidInput(f"the settings file {path} cannot be read: {error.strerror or error}") from error
    if len(text) > _MOST_BYTES:
        raise InvalidInput(f"the settings file {path} has more than {_MOST_BYTES} bytes: is it the right one?")
    try:
        return checked(_converted(text.decode()))
    except UnicodeDecodeError as error:
        raise InvalidInput(f"the settings file {path} is no text: expected UTF-8") from error
    except InvalidInput as error:
        raise InvalidInput(f"settings file {path}: {error}") from error


def checked(options: KubernetesOptions) -> KubernetesOptions:
    """Return the options unchanged, or raise InvalidInput naming the first impossible one."""
    _check_leader(options)
    _check_cluster(options)
    if not 0 <= options.listen.port <= 65_535:
        raise InvalidInput(f"listen.port is {options.listen.port}, expected 0 (any) to 65535")
    if not options.home:
        raise InvalidInput("home is empty, expected a folder")
    if options.api.url and not options.api.url.startswith(("http://", "https://")):
        raise InvalidInput(f"api.url is {options.api.url[:200]!r}, expected http://... or https://...")
    if not 1 <= options.jobs_per_user <= _MOST_JOBS:
        raise InvalidInput(f"jobsPerUser is {options.jobs_per_user}, expected 1 or more")
    if options.log_bytes_per_user < 0:
        raise InvalidInput(f"logBytesPerUser is {options.log_bytes_per_user}, expected 0 (no limit) or more")
    if options.live_bytes_per_user < 0:
        raise InvalidInput(f"liveBytesPerUser is {options.live_bytes_per_user}, expected 0 (no limit) or more")
    _check_sharing(options.sharing)
    for name in options.pools:
        names.pool(name, "pools")
        options.pool_settings(name)
    return options


def _check_sharing(sharing: SharingSettings) -> None:
    try:
        RATERS.choose(sharing.rater)
    except InvalidInput as error:
        raise InvalidInput(f"sharing.rater: {error}") from error
    if sharing.nodes_to_score < 0:
        raise InvalidInput(f"sharing.nodesToScore is {sharing.nodes_to_score}, expected 0 (all) or more")
    for name, resources in (("coreResources", sharing.core_resources), ("memoryResources", sharing.memory_resources)):
        if not resources:
            raise InvalidInput(f"sharing.{name} is empty, expected the name of an extended resource")
        for number, resource in enumerate(resources):
            _match(f"sharing.{name}[{number}]", resource, _KEY, "the name of an extended resource")
    for name, capacity in (("compute", sharing.compute_capacity), ("memory", sharing.memory_capacity)):
        _match(f"sharing.{name}Capacity", capacity, _KEY, "the name of a device's capacity, such as memory")
    if both := sorted({*sharing.core_resources} & {*sharing.memory_resources}):
        raise InvalidInput(f"sharing.coreResources and sharing.memoryResources both have {both[0]}")


def _check_leader(options: KubernetesOptions) -> None:
    leader = options.leader
    try:
        longest_s = leader.timings().duration_s
    except ValueError as error:
        got = str(error).partition(", got ")[2]
        raise InvalidInput(f"leader: expected 0 < retrySeconds < renewSeconds < leaseSeconds, got {got}") from error
    if longest_s > _LONGEST_LEASE_S:
        raise InvalidInput(f"leader.leaseSeconds is {longest_s:g}, expected at most {_LONGEST_LEASE_S:g}")
    _match("leader.name", leader.name, _SUBDOMAIN, "the name of a Lease")
    if leader.namespace:
        _match("leader.namespace", leader.namespace, _NAMESPACE, "the name of a namespace")


def _check_cluster(options: KubernetesOptions) -> None:
    cluster = options.cluster
    _match("cluster.poolLabel", cluster.pool_label, _KEY, "a label's key, such as nvidia.com/gpu.product")
    _match("cluster.gpuResource", cluster.gpu_resource, _KEY, "a resource, such as nvidia.com/gpu")
    if cluster.default_pool:
        names.pool(cluster.default_pool, "cluster.defaultPool")
    for number, key in enumerate(cluster.tolerated_taints):
        _match(f"cluster.toleratedTaints[{number}]", key, _KEY, "a taint's key, such as nvidia.com/gpu")
    for number, name in enumerate(cluster.gpu_device_classes):
        _match(f"cluster.gpuDeviceClasses[{number}]", name, _SUBDOMAIN, "the name of a DeviceClass")
    if cluster.pool_device_attribute:
        what = "an attribute of devices, such as gpu.nvidia.com/productName"
        _match("cluster.poolDeviceAttribute", cluster.pool_device_attribute, _KEY, what)
    for number, namespace in enumerate(cluster.namespaces):
        _match(f"cluster.namespaces[{number}]", namespace, _NAMESPACE, "the name of a namespace")
    for number, kind in enumerate(cluster.kinds):
        if kind not in KINDS:
            raise InvalidInput(f"cluster.kinds[{number}] is {kind[:80]!r}, expected one of {', '.join(KINDS)}")
        if KINDS[kind].is_run_by_child and "Job" not in cluster.kinds:
            raise InvalidInput(f"cluster.kinds has {kind} without Job, expected both: a {kind} is resized by its Job")
    if not _PREFIX.fullmatch(cluster.user_prefix):
        raise InvalidInput(
            f"cluster.userPrefix is {cluster.user_prefix[:80]!r}, expected up to 200 of letters, digits and :_.@/#=+-"
        )
    if not 1 <= cluster.relist_seconds <= _LONGEST_S:
        raise InvalidInput(f"cluster.relistSeconds is {cluster.relist_seconds:g}, expected 1 to {_LONGEST_S:g}")


def _match(path: str, text: str, pattern: re.Pattern[str], expected: str) -> None:
    if not pattern.fullmatch(text):
        raise InvalidInput(f"{path} is {text[:200]!r}, expected {expected}")


def _converted(text: str) -> KubernetesOptions:
    lines = (line.strip() for line in text.splitlines())
    if all(not line or line.startswith("#") for line in lines):
        return KubernetesOptions()
    fields = read(text)
    if not isinstance(fields, dict):
        got = "a list" if isinstance(fields, list) else f"{fields!r:.100}"
        raise InvalidInput(f"expected fields such as `pools:`, got {got}")
    _refuse_unknown(fields, KubernetesOptions, "")
    try:
        return msgspec.convert(fields, KubernetesOptions)
    except msgspec.ValidationError as error:
        at = _AT.search(str(error))
        message = str(error)[: at.start()] if at else str(error)
        path = at["path"].replace("[...]", ".*") if at else "it"
        raise InvalidInput(f"{path}: {message[0].lower()}{message[1:]}".replace("`", "")) from error


def _refuse_unknown(given: Mapping[str, Any], record: type[Struct], path: str) -> None:
    fields = {field.encode_name: field.type for field in msgspec.structs.fields(record)}
    for name, value in given.items():
        at = f"{path}{name}"
        if at in _FORMER:
            raise InvalidInput(f"there is no {at} any more: {_FORMER[at]}")
        if name not in fields:
            raise InvalidInput(f"{at[:200]} is unknown here, expected one of {', '.join(fields)}")
        part = fields[name]
        if isinstance(value, dict) and isinstance(part, type) and issubclass(part, Struct):
            _refuse_unknown(value, part, f"{at}.")
