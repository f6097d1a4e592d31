"""How many replicas a job may have and how many GPUs each, and the other settings in annotations and environment.

Rule: annotations win over the environment, the environment over elasticPolicy, and that over `replicas`; every value
remembers the path it came from. The environment counts processes, everything else counts replicas. A replica is one
worker. On Kubernetes its GPUs are what its pod takes of the resource that counts them; on one machine they are the
limit of the container that trains, of any resource that is named after GPUs, and without one, one for each process.
"""

import re
from collections.abc import Callable, Iterable, Sequence, Set
from contextlib import suppress
from typing import Final

from msgspec import Struct

from voda.domain.errors import InvalidField, InvalidInput
from voda.domain.gpus import NO_GPUS, GpuRequest, Gpus, request_of_core
from voda.domain.job import MOST_REPLICAS
from voda.domain.sizes import JobSizes
from voda.domain.sizes.text import parse_sizes
from voda.kinds.base import JobManifest, refuse_outside, replicas_path
from voda.kinds.pod_needs import OF_CLASS
from voda.kinds.pod_template import MOST_GPUS, ContainerResources, ContainerTemplate, Quantity
from voda.kinds.quantities import milli, pod_requests
from voda.manifests.programs import expand_container
from voda.programs.program_manifest import SHARE_CORE, SHARE_MEMORY

_WHOLE_NUMBER = re.compile(r"[-+]?[0-9]{1,18}")
# Setting -> its annotation and its variables, the newer name first.
_SOURCES: dict[str, tuple[str, tuple[str, ...]]] = {
    "min_replicas": ("voda.dev/min-replicas", ("MIN_NUM_PROC", "MIN_NP")),
    "max_replicas": ("voda.dev/max-replicas", ("MAX_NUM_PROC", "MAX_NP")),
    "sizes": ("voda.dev/sizes", ()),
    "requested": ("", ("NUM_PROC", "NP")),
    "epochs": ("voda.dev/epochs", ("EPOCHS",)),
    "priority": ("voda.dev/priority", ("JOB_PRIORITY",)),
    "pool": ("voda.dev/pool", ()),
    "virtual_cluster": ("voda.dev/virtual-cluster", ()),
    "pinned_cell": ("voda.dev/pinned-cell", ()),
    "restartable": ("voda.dev/restartable", ()),
    "category": ("", ("JOB_NAME",)),
    "after": ("voda.dev/after", ()),
    "array": ("voda.dev/array", ()),
    "array_name": ("voda.dev/array-name", ()),
    "array_task": ("voda.dev/array-task", ()),
}
VARIABLES = frozenset(name for _, names in _SOURCES.values() for name in names)

_CORE: Final = (SHARE_CORE, "elasticgpu.com/gpu-core")
_MEMORY: Final = (SHARE_MEMORY, "elasticgpu.com/gpu-memory")
# Shares of a GPU (elasticgpu.io/gpu-core: 100 is one GPU; aliyun.com/gpu-mem is GiB) are no count of GPUs.
_SHARES = ("core", "mem", "percent")


class FieldText(Struct, frozen=True):
    text: str
    path: str
    is_env: bool = False
    """Then it counts processes."""


class JobSettings:
    """The settings in the annotations, and in the environment of the first role's container."""

    def __init__(self, job: JobManifest) -> None:
        self._annotations = job.metadata.annotations or {}
        self._env = _environment(job)

    def get(self, setting: str) -> FieldText | None:
        """Return a setting by its name in `_SOURCES`, such as epochs; None where it is not set."""
        annotation, variables = _SOURCES[setting]
        if annotation in self._annotations:
            return FieldText(self._annotations[annotation], f"metadata.annotations[{annotation}]")
        return next((self._env[name] for name in variables if name in self._env), None)


class _Bound(Struct, frozen=True):
    """A bound in replicas, and what was written where."""

    replicas: int
    path: str
    written: int
    source: str
    """annotation, env, elasticPolicy or replicas."""


class SizeBounds(Struct, frozen=True, kw_only=True):
    """How many replicas a job may have; a Master counts as one."""

    least: int
    most: int
    requested: int
    sizes: JobSizes | None
    """None: all from the least to the most."""


def replica_bounds(job: JobManifest, settings: JobSettings, processes: int) -> SizeBounds:
    """Return how many replicas a job may have, each of so many processes.

    Raises:
        InvalidField: a value is no number or out of bounds, the least is more than the most, or a bound is no size.
    """
    requested = _set_bound(settings, "requested", processes)
    plain = requested or _field_bound(job.replica_count(), replicas_path(job, job.resized_role), "replicas")
    least, most = (_set_bound(settings, setting, processes) for setting in ("min_replicas", "max_replicas"))
    if (field := settings.get("sizes")) is not None:
        return _sized_bounds(job, parse_sizes(field.text, field.path), field.path, (least, most, plain))
    if (own := job.own_bounds()) is not None:
        own_least = _field_bound(own.min_replicas, own.min_path, "elasticPolicy")
        own_most = _field_bound(own.max_replicas, own.max_path, "elasticPolicy")
        least, most = least or own_least, most or own_most
    if least is None:
        least = plain if most is None or plain.replicas <= most.replicas else most
    if most is None:
        most = plain if plain.replicas >= least.replicas else least
    _refuse_crossed(least, most)
    # Processes are rounded up for the least and down for the most, which may cross where both are the same.
    greatest = max(most.replicas, least.replicas)
    _refuse_unnumbered(job, greatest, most.path)
    _refuse_growth_without_workers(job, greatest, most.path)
    wanted = _requested(requested, plain, (least, most))
    return SizeBounds(least=least.replicas, most=greatest, requested=wanted, sizes=None)


def _sized_bounds(
    job: JobManifest, sizes: JobSizes, path: str, given: tuple["_Bound | None", "_Bound | None", "_Bound"]
) -> SizeBounds:
    """Return the bounds of a job whose sizes an annotation says: of others, only annotations count."""
    *bounds, plain = given
    ends = _field_bound(sizes.least, path, "annotation"), _field_bound(sizes.most, path, "annotation")
    own = (bound if bound is not None and bound.source == "annotation" else None for bound in bounds)
    least, most = (bound or end for bound, end in zip(own, ends, strict=True))
    _refuse_crossed(least, most)
    for bound in (least, most):
        if bound.replicas not in sizes:
            raise InvalidField(
                bound.path, f"{bound.path}: expected one of the sizes in {path}, {sizes}, got {bound.replicas}"
            )
    _refuse_unnumbered(job, most.replicas, most.path)
    _refuse_growth_without_workers(job, most.replicas, most.path)
    requested = sizes.floor(min(max(plain.replicas, least.replicas), most.replicas))
    return SizeBounds(
        least=least.replicas, most=most.replicas, requested=requested, sizes=None if sizes.is_dense else sizes
    )


def whole_number(field: FieldText, *, least: int, most: int) -> int:
    """Return the whole number that a field holds, or refuse it."""
    text = field.text.strip()
    if not _WHOLE_NUMBER.fullmatch(text):
        raise InvalidField(field.path, f"{field.path}: expected a whole number, got {field.text[:60]!r}")
    refuse_outside(field.path, int(text), least, most)
    return int(text)


def _set_bound(settings: JobSettings, setting: str, processes: int) -> _Bound | None:
    field = settings.get(setting)
    if field is None:
        return None
    if not field.is_env:
        written = whole_number(field, least=1, most=MOST_REPLICAS)
        return _Bound(written, field.path, written, "annotation")
    written = whole_number(field, least=1, most=MOST_REPLICAS * processes)
    replicas = max(written // processes, 1) if setting == "max_replicas" else -(-written // processes)
    return _Bound(replicas, field.path, written, "env")


def _field_bound(replicas: int, path: str, source: str) -> _Bound:
    refuse_outside(path, replicas, 1, MOST_REPLICAS)
    return _Bound(replicas, path, replicas, source)


def _refuse_crossed(least: _Bound, most: _Bound) -> None:
    is_rounded = least.source == most.source == "env"
    low, high = (least.written, most.written) if is_rounded else (least.replicas, most.replicas)
    if low > high:
        raise InvalidField(
            most.path, f"{most.path}: expected no less than {low}, which {least.path} asks for at least, got {high}"
        )


def _refuse_unnumbered(job: JobManifest, most: int, path: str) -> None:
    if most > 1 and job.is_rigid:
        field = f"{job.path(job.resized_role)}.completionMode"
        raise InvalidField(
            field, f"{field}: expected Indexed for {most} replicas ({path}): a Job without numbers has one"
        )


def _refuse_growth_without_workers(job: JobManifest, most: int, path: str) -> None:
    role = job.placed_roles[-1]
    if most > 1 and role not in job.roles:
        field = job.path(role)
        raise InvalidField(
            field, f"{field} is missing: {path} asks for {most} replicas, and a {job.resized_role} alone is one"
        )


def _requested(requested: _Bound | None, plain: _Bound, bounds: tuple[_Bound, _Bound]) -> int:
    """Return the size for policies that do not resize: NUM_PROC, else MIN_NUM_PROC, else the manifest's own."""
    least, most = bounds
    greatest = max(most.replicas, least.replicas)
    if requested is None and least.source == "env":
        return least.replicas
    is_outside = not least.replicas <= plain.replicas <= greatest
    if requested is not None and is_outside and "annotation" not in (least.source, most.source):
        raise InvalidField(
            requested.path,
            f"{requested.path}: expected {least.written} ({least.path}) to {most.written} ({most.path}),"
            f" got {requested.written}",
        )
    return min(max(plain.replicas, least.replicas), greatest)


def _environment(job: JobManifest) -> dict[str, FieldText]:
    """Return the variables that voda reads, expanded, each with its path."""
    role = next(iter(job.roles))
    index, container = job.main_container(role)
    path = f"{job.path(role)}.template.spec.containers[{index}].env"
    places = {each.name: place for place, each in enumerate(container.env or ()) if each.name in VARIABLES}
    if not places:
        return {}
    env = expand_container(job, role, index)
    return {name: FieldText(env[name], f"{path}[{place}].value", True) for name, place in places.items() if name in env}


def is_gpu_count(resource: str) -> bool:
    """Return whether a resource counts GPUs, such as nvidia.com/gpu or amd.com/gpu."""
    return "gpu" in resource and not is_gpu_share(resource)


def is_gpu_share(resource: str) -> bool:
    """Return whether a resource is part of a GPU, such as elasticgpu.io/gpu-core."""
    return "gpu" in resource and any(share in resource for share in _SHARES)


def share_path(job: JobManifest, names: Sequence[str] = (*_CORE, *_MEMORY)) -> str:
    """Return the path of the part of a GPU that the workers' container asks for; empty: it asks for none."""
    index, container = job.main_container(job.resized_role)
    path = f"{job.path(job.resized_role)}.template.spec.containers[{index}].resources"
    resources = container.resources
    if resources is None:
        return ""
    given = {"limits": resources.limits or {}, "requests": resources.requests or {}}
    return next((f"{path}.{kind}[{name}]" for kind, each in given.items() for name in names if name in each), "")


def share_memory_path(job: JobManifest) -> str:
    """Return the path of the memory of a GPU that the workers' container asks for; empty: it asks for none."""
    return share_path(job, _MEMORY)


def share_request(job: JobManifest) -> GpuRequest:
    """Return the part of a GPU, or the whole GPUs, that the workers' container asks for.

    Raises:
        ValueError: it asks for what no GPU has, or in two ways.
    """
    _, container = job.main_container(job.resized_role)
    resources = container.resources or ContainerResources()
    if whole := [name for name, amount in (resources.limits or {}).items() if is_gpu_count(name) and amount]:
        raise ValueError(f"it asks for {whole[0]} and for a part of a GPU, expected one of them")
    core, memory_mib = (_share(resources, names) for names in (_CORE, _MEMORY))
    return request_of_core(core, memory_mib)


def _share(resources: ContainerResources, names: Sequence[str]) -> int:
    limits, requests = resources.limits or {}, resources.requests or {}
    used = [name for name in names if name in limits or name in requests]
    if len(used) > 1:
        raise ValueError(f"it asks for {used[0]} and for {used[1]}, expected one of them: they are the same resource")
    if not used:
        return 0
    limit = limits.get(used[0], requests.get(used[0], 0))
    if str(requests.get(used[0], limit)) != str(limit):
        raise ValueError(
            f"{used[0]}: its request is {requests[used[0]]!r:.40} and its limit {limit!r:.40}, expected the same"
        )
    text = str(limit).strip()
    if not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise ValueError(f"{used[0]}: expected a whole number from 0, got {text[:40]!r}")
    return int(text)


def named_resources(job: JobManifest) -> Set[str]:
    """Return the resources that containers of the replicas ask for."""
    pods = [job.roles[role].template.spec for role in job.placed_roles if role in job.roles]
    containers = [each for pod in pods for each in (*pod.containers, *(pod.init_containers or ()))]
    asked = [each.resources for each in containers if each.resources is not None]
    return {name for each in asked for name in (*(each.limits or {}), *(each.requests or {}))}


def devices_by_name(job: JobManifest, classes: Iterable[str]) -> int:
    """Return how many devices of these classes one worker asks for by resources that are called after them.

    Raises:
        InvalidField: the amount is no whole number, or more than 1,024.
    """
    asked = named_resources(job)
    return sum(_gpus_of_pod(job, name) for each in classes if (name := f"{OF_CLASS}{each}") in asked)


def gpus_per_replica(job: JobManifest, gpu_resource: str = "", claimed: int = 0) -> Gpus:
    """Return the GPUs of one worker: of a resource that counts them, besides those that it claims.

    Without such a resource it runs on one machine: see the rule above.

    Raises:
        InvalidField: the amount is no whole number, or more than 1,024 in all.
    """
    asked = _gpus_of_pod(job, gpu_resource) if gpu_resource else _gpus_of_container(job)
    if claimed:
        return _bounded((asked or 0) + claimed, f"{job.path(job.resized_role)}.template.spec.resourceClaims")
    return _bounded(job.processes or 1, job.processes_field) if asked is None else asked


def launcher_gpus(job: JobManifest, gpu_resource: str, of_worker: Gpus) -> Gpus:
    """Return the GPUs of the roles whose pods are no replicas, such as a launcher; none on one machine.

    Raises:
        InvalidField: the amount is no whole number, or more than a worker's.
    """
    found = NO_GPUS
    for role in job.roles.keys() - set(job.placed_roles) if gpu_resource else ():
        found += (gpus := _gpus_of_role(job, role, gpu_resource))
        if gpus > of_worker:
            path = f"{job.path(role)}.template.spec"
            raise InvalidField(
                path,
                f"{path}: asks for {gpus} {gpu_resource}, expected no more than the {of_worker} of each worker, beside"
                " which it is planned",
            )
    return found


def processes_per_replica(job: JobManifest, gpus: int) -> int:
    """Return the processes of one worker; where the manifest leaves it open, one for each of its GPUs."""
    return job.processes or max(gpus, 1)


def _gpus_of_pod(job: JobManifest, resource: str) -> Gpus:
    """Return the GPUs of the role that takes most: replicas are planned alike, a Master as the workers."""
    return max(_gpus_of_role(job, role, resource) for role in job.placed_roles if role in job.roles)


def _gpus_of_role(job: JobManifest, role: str, resource: str) -> Gpus:
    spec, path = job.roles[role].template.spec, f"{job.path(role)}.template.spec"
    for field, containers in (("containers", spec.containers), ("initContainers", spec.init_containers or ())):
        for index, container in enumerate(containers):
            _gpu_limit(container, f"{path}.{field}[{index}].resources", lambda name: name == resource)
    try:
        taken = pod_requests(spec, path).get(resource, 0)
    except InvalidInput as error:
        raise InvalidField(path, str(error)) from error
    return _bounded(-(-taken // 1000), path)


def _gpus_of_container(job: JobManifest) -> Gpus | None:
    index, container = job.main_container(job.resized_role)
    path = f"{job.path(job.resized_role)}.template.spec.containers[{index}].resources"
    return _gpu_limit(container, path, is_gpu_count)


def _gpu_limit(container: ContainerTemplate, path: str, counts: Callable[[str], bool]) -> Gpus | None:
    """Return the limit of the resources that count GPUs, else the request; None: there is neither."""
    resources = container.resources or ContainerResources()
    for field, amounts in (("limits", resources.limits or {}), ("requests", resources.requests or {})):
        found = [
            _whole_gpus(name, amount, f"{path}.{field}[{name}]") for name, amount in amounts.items() if counts(name)
        ]
        if found:
            return _bounded(sum(found), f"{path}.{field}")
    return None


def _whole_gpus(resource: str, value: Quantity, path: str) -> Gpus:
    if isinstance(value, int):
        return _bounded(value, path)
    text = str(value).strip()
    if text.isascii() and text.isdecimal() and len(text) < 10:
        return _bounded(int(text), path)
    # Of a CPU there are parts; a worker has whole ones.
    if "/" not in resource:
        with suppress(InvalidInput):
            return _bounded(-(-milli(value) // 1000), path)
    raise InvalidField(path, f"{path}: expected a whole number of GPUs, got {text[:60]!r}")


def _bounded(gpus: int, path: str) -> Gpus:
    if not 0 <= gpus <= MOST_GPUS:
        raise InvalidField(path, f"{path}: expected 0 to {MOST_GPUS} GPUs for one replica, got {gpus}")
    return Gpus(gpus)
