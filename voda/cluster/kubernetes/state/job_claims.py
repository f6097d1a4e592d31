"""How many GPUs the claims of a job's pods ask for, when it is submitted and whenever new pods are to be made, and
which GPUs of a node they have. Pure.

Rule: a claim template can be deleted and made anew at any time: a job starts only where its pods would get claims, and
these ask for as many GPUs as plans give it.
"""

from collections.abc import Mapping

from msgspec.structs import replace

from voda.cluster.kubernetes import well_known
from voda.cluster.kubernetes.device_objects import ResourceClaim
from voda.cluster.kubernetes.kinds.gpu_claims import replica_claims
from voda.cluster.kubernetes.state.devices import DeviceStock
from voda.cluster.kubernetes.state.inventory import Inventory
from voda.cluster.kubernetes.state.job_objects import KubeJob
from voda.cluster.kubernetes.state.job_pods import worker_of
from voda.domain.errors import InvalidField, MissingReference
from voda.domain.gpus import Gpus
from voda.domain.job import Job
from voda.manifests.conversion import typed_manifest
from voda.manifests.parse import ParsedManifest
from voda.manifests.replicas import gpus_per_replica, names_resource


def with_claimed_gpus(parsed: ParsedManifest, devices: DeviceStock) -> ParsedManifest:
    """Return a manifest whose job has the GPUs that its claims ask for.

    Raises:
        MissingReference: a template or a device class is not there yet.
        InvalidField: the number cannot be known, or is 0.
    """
    job, spec, rule = parsed.job, parsed.spec, devices.rule
    _check_device_class((job.metadata.annotations or {}).get(well_known.DEVICE_CLASS), devices)
    claims = job.roles[job.resized_role].template.spec.resource_claims or ()
    if not claims or not devices.is_served:
        return parsed
    path = f"{job.path(job.resized_role)}.template.spec"
    try:
        claimed = devices.claimed(spec.namespace, claims)
    except InvalidField as error:
        field = f"{path}.{error.field}"
        raise type(error)(field, f"{field}: {error}") from error
    if claimed:
        return replace(parsed, spec=replace(spec, gpus_per_replica=Gpus(gpus_per_replica(job, claimed))))
    if not names_resource(job, rule.resource):
        field = f"{path}.resourceClaims"
        classes = ", ".join(rule.device_classes)
        raise InvalidField(field, f"{field}: asks for no GPU: expected a request of a device class {classes}")
    return parsed


def _check_device_class(name: str | None, devices: DeviceStock) -> None:
    """Raise where a manifest wants claims made for it that nobody could allocate."""
    field = f"metadata.annotations[{well_known.DEVICE_CLASS}]"
    if name is None:
        return
    if not devices.is_served:
        raise InvalidField(field, f"{field}: this voda sees no device classes: Kubernetes 1.34 or newer has them")
    if name not in devices.rule.device_classes:
        expected = ", ".join(devices.rule.device_classes)
        raise InvalidField(field, f"{field}: expected one of cluster.gpuDeviceClasses ({expected}), got {name[:253]!r}")
    if name not in devices.classes:
        raise MissingReference(field, f"{field}: there is no DeviceClass {name!r}")


def claims_obstacle(devices: DeviceStock, job: Job | None, kube_job: KubeJob | None) -> str:
    """Return why new pods of a job would get no claims, or others than plans count, one sentence; empty: they would."""
    claims = replica_claims(kube_job.kind.kind, kube_job.object) if kube_job is not None else ()
    if job is None or kube_job is None or not claims or not devices.is_served:
        return ""
    own = kube_job.object.metadata.annotations.get(well_known.DEVICE_CLASS)
    if own is not None and any(each.name == well_known.GPU_CLAIM for each in claims):
        # Its template is voda's own: it may be a moment old, and is made again where somebody deletes it.
        return "" if own in devices.classes else f"its pods would get no GPUs: there is no DeviceClass {own!r}"
    try:
        claimed = devices.claimed(job.spec.namespace, claims)
    except InvalidField as error:
        return f"its pods would get no GPUs: {error}"
    gpus = job.spec.gpus_per_replica
    # Extended resources count beside claims: only the manifest, which takes its time to read, says how many.
    if claimed == gpus or job.spec.manifest is None:
        return ""
    if gpus_per_replica(typed_manifest(job.spec.manifest), claimed) == gpus:
        return ""
    return (
        f"its claim templates ask for {claimed} GPUs of each replica now, and it was submitted with {gpus}: submit it"
        " again, or restore the templates"
    )


def job_gpus(inventory: Inventory, node: str) -> Mapping[int, str]:
    """Return GPU -> id of the job of which a worker's claim has it; one that has a part keeps the rest from others."""
    shared = inventory.stock.devices.shared
    index = {gpu.id: number for number, gpu in enumerate(shared.nodes.get(node, ()))}
    found = ((claim, _job_of(inventory, claim)) for claim in shared.claims_on(node).values())
    return {index[device]: job_id for claim, job_id in found if job_id for device in claim.devices & index.keys()}


def _job_of(inventory: Inventory, claim: ResourceClaim) -> str:
    """Return the id of the job whose worker a claim was made for; empty: it is none of a worker."""
    pod = inventory.pods_by_key.get(claim.pod)
    job_id = worker_of(pod) if pod is not None else ""
    # Anybody can copy the annotation.
    return job_id if job_id and claim.pod in inventory.workers(job_id) else ""
