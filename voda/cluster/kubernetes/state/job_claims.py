"""How many GPUs the claims of a job's pods ask for, when it is submitted and whenever new pods are to be made, and
which GPUs of a node they have. Pure.

Rule: a claim template can be deleted and made anew at any time: a job starts only where its pods would get claims, and
these ask for as many GPUs as plans give it.
"""

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from voda.cluster.kubernetes import well_known
from voda.cluster.kubernetes.device_objects import ResourceClaim
from voda.cluster.kubernetes.kinds.gpu_claims import replica_claims
from voda.cluster.kubernetes.objects import Pod
from voda.cluster.kubernetes.state.devices import DeviceStock, partition_obstacle
from voda.cluster.kubernetes.state.inventory import Inventory, taken_of_node
from voda.cluster.kubernetes.state.job_objects import KubeJob
from voda.cluster.kubernetes.state.job_pods import worker_of
from voda.domain.errors import InvalidField, MissingReference
from voda.domain.job import Job
from voda.kinds.pod_needs import OF_CLASS
from voda.manifests.conversion import typed_manifest
from voda.manifests.parse import DEVICE_CLASS, ParsedManifest
from voda.manifests.replicas import devices_by_name, gpus_per_replica, named_resources


def with_claimed_gpus(parsed: ParsedManifest, devices: DeviceStock) -> ParsedManifest:
    """Return a manifest whose job has the GPUs that its claims ask for.

    Raises:
        MissingReference: a template or a device class is not there yet.
        InvalidField: the number cannot be known, or is 0.
    """
    job, spec, rule = parsed.job, parsed.spec, devices.rule
    _check_device_class((job.metadata.annotations or {}).get(DEVICE_CLASS), devices)
    claims = job.roles[job.resized_role].template.spec.resource_claims or ()
    named = devices_by_name(job, rule.device_classes) if devices.is_served else 0
    if not (claims or named) or not devices.is_served:
        return parsed
    path = f"{job.path(job.resized_role)}.template.spec"
    by_name = [each for each in rule.device_classes if devices_by_name(job, (each,))]
    if obstacle := partition_obstacle(devices, by_name):
        raise InvalidField(path, f"{path}: {obstacle}")
    try:
        claimed = named + devices.claimed(spec.namespace, claims)
    except InvalidField as error:
        field = f"{path}.{error.field}"
        raise type(error)(field, f"{field}: {error}") from error
    if claimed:
        return replace(parsed, spec=replace(spec, gpus_per_replica=gpus_per_replica(job, rule.resource, claimed)))
    if rule.resource not in named_resources(job):
        field = f"{path}.resourceClaims"
        classes = ", ".join(rule.device_classes)
        raise InvalidField(field, f"{field}: asks for no GPU: expected a request of a device class {classes}")
    return parsed


def _check_device_class(name: str | None, devices: DeviceStock) -> None:
    """Raise where a manifest wants claims made for it that nobody could allocate."""
    field = f"metadata.annotations[{DEVICE_CLASS}]"
    if name is None:
        return
    if not devices.is_served:
        raise InvalidField(field, f"{field}: this voda sees no device classes: Kubernetes 1.34 or newer has them")
    if name not in devices.rule.device_classes:
        expected = ", ".join(devices.rule.device_classes)
        raise InvalidField(field, f"{field}: expected one of cluster.gpuDeviceClasses ({expected}), got {name[:253]!r}")
    if name not in devices.published.classes:
        raise MissingReference(field, f"{field}: there is no DeviceClass {name!r}")
    if obstacle := partition_obstacle(devices, (name,)):
        raise InvalidField(field, f"{field}: {obstacle}")


def claims_obstacle(devices: DeviceStock, job: Job | None, kube_job: KubeJob | None) -> str:
    """Return why new pods of a job would get no claims, or others than plans count, one sentence; empty: they would."""
    claims = replica_claims(kube_job.kind.kind, kube_job.object) if kube_job is not None else ()
    if job is None or kube_job is None or not claims or not devices.is_served:
        return ""
    own = kube_job.object.metadata.annotations.get(DEVICE_CLASS)
    if own is not None and any(each.name == well_known.GPU_CLAIM for each in claims):
        # Its template is voda's own: it may be a moment old, and is made again where somebody deletes it.
        return (
            "" if own in devices.published.classes else f"its pods would get no GPUs: there is no DeviceClass {own!r}"
        )
    try:
        claimed = devices.claimed(job.spec.namespace, claims)
    except InvalidField as error:
        return f"its pods would get no GPUs: {error}"
    gpus = job.spec.gpus_per_replica
    # Extended resources count beside claims: only the manifest, which takes its time to read, says how many.
    if claimed == gpus or job.spec.manifest is None:
        return ""
    typed = typed_manifest(job.spec.manifest)
    if (
        gpus_per_replica(typed, devices.rule.resource, claimed + devices_by_name(typed, devices.rule.device_classes))
        == gpus
    ):
        return ""
    return (
        f"its claim templates ask for {claimed} GPUs of each replica now, and it was submitted with {gpus}: submit it"
        " again, or restore the templates"
    )


def gpus_obstacle(devices: DeviceStock, job: Job | None, workers: Iterable[Pod]) -> str:
    """Return that pods which wait for their nodes ask for more GPUs than plans count, one sentence; empty: none does.

    Whoever may change the templates of an object, or its pods as they are admitted, would have what no plan gave.
    """
    resource = devices.rule.resource
    # Parts of a CPU may be added to any pod.
    if job is None or job.spec.share is not None or "/" not in resource:
        return ""
    gated = [pod for pod in workers if well_known.GATE in pod.gates and pod.is_active]
    counted, asked = job.spec.gpus_per_replica, max((_gpus_of(devices, pod) for pod in gated), default=0)
    if asked <= counted:
        return ""
    return (
        f"its pods ask for {asked} GPUs each now, and plans count {counted}: restore its templates, or submit it again"
    )


def _gpus_of(devices: DeviceStock, pod: Pod) -> int:
    taken = taken_of_node(pod, devices.rule.resource)
    named = (f"{OF_CLASS}{each}" for each in devices.rule.device_classes)
    return devices.requested(pod) + -(-sum(taken.get(name, 0) for name in (devices.rule.resource, *named)) // 1000)


def job_gpus(inventory: Inventory, node: str) -> Mapping[int, str]:
    """Return GPU -> id of the job of which a worker's claim has it; one that has a part keeps the rest from others."""
    shared = inventory.stock.devices.shared
    index = {gpu.id: number for number, gpu in enumerate(shared.nodes.get(node, ()))}
    found = ((claim, _job_of(inventory, claim)) for claim in shared.claims_on(node).values())
    return {index[device]: job_id for claim, job_id in found if job_id for device in claim.devices & index.keys()}


def contested_gpu(inventory: Inventory, pod: Pod) -> tuple[str, str] | None:
    """Return which GPU of a worker another claim has as well, and whose that is, where it is the worker's to leave.

    Schedulers that do not know of each other allocate a device twice. Others' pods are not voda's to move; of two
    workers the one leaves that came later.
    """
    devices = inventory.stock.devices
    own = {f"{pod.metadata.namespace}/{name}" for name in pod.claim_names} & devices.claims.keys()
    for key in sorted(own):
        claim = devices.claims[key]
        for result in claim.results:
            device = (result.driver, result.pool, result.device)
            others = sorted({*devices.claims_holding(device)} - own) if not result.share_id else ()
            for other in (devices.claims[each] for each in others):
                if not _job_of(inventory, other) or _came_at(other) < _came_at(claim):
                    return "/".join(device), other.pod or other.metadata.key
    return None


def _came_at(claim: ResourceClaim) -> tuple[str, str]:
    """Return what orders claims by when they got their devices; RFC 3339 in UTC sorts as text."""
    allocation = claim.status.allocation
    return (allocation.allocation_timestamp if allocation is not None else ""), claim.metadata.uid


def _job_of(inventory: Inventory, claim: ResourceClaim) -> str:
    """Return the id of the job whose worker a claim was made for; empty: it is none of a worker."""
    pod = inventory.pods_by_key.get(claim.pod)
    job_id = worker_of(pod) if pod is not None else ""
    # Anybody can copy the annotation.
    return job_id if job_id and claim.pod in inventory.workers(job_id) else ""
