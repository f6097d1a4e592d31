"""What a pod asks for, by HiveD's annotation: read as HiveD reads it, with the names of its older versions.

Rule: keys that nobody knows are skipped, as by HiveD; a value that cannot be meant is refused with its path.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple, TypeVar

import msgspec
from msgspec import Struct

from voda.cells.gangs import GangRequest
from voda.domain.errors import InvalidField, InvalidInput
from voda.manifests import yaml_text

T = TypeVar("T", bound=Struct)

PREFIX: Final = "hivedscheduler.microsoft.com/"
SCHEDULING_SPEC: Final = f"{PREFIX}pod-scheduling-spec"
_MOST_PODS: Final = 65_536
"""Of an affinity group: each has its place in a list, and anybody may annotate a pod."""
_OLD_NAMES: Final = {
    "gpuType": "leafCellType",
    "gpuNumber": "leafCellNumber",
    "gpuIsolation": "leafCellIsolation",
    "physicalGpuIndices": "physicalLeafCellIndices",
}


class PodMetadata(Struct, frozen=True):
    """What names a pod, and its annotations."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    annotations: Mapping[str, str] | None = None


class HivedPod(Struct, frozen=True):
    """A pod as Kubernetes writes it, as far as HiveD's annotations go."""

    metadata: PodMetadata = PodMetadata()

    @property
    def key(self) -> str:
        """Namespace and name."""
        return f"{self.metadata.namespace or 'default'}/{self.metadata.name}"

    def annotation(self, name: str) -> str:
        """Return an annotation; empty where there is none."""
        return (self.metadata.annotations or {}).get(name, "")


class HivedRequest(NamedTuple):
    """The gang that a pod belongs to, and the devices of the pod itself."""

    gang: GangRequest
    leafs: int


class _Member(Struct, frozen=True, rename="camel"):
    pod_number: int
    leaf_cell_number: int


class _AffinityGroup(Struct, frozen=True, rename="camel"):
    name: str = ""
    members: tuple[_Member, ...] = ()


class _SchedulingSpec(Struct, frozen=True, rename="camel"):
    virtual_cluster: str = ""
    priority: int = 0
    pinned_cell_id: str = ""
    leaf_cell_type: str = ""
    leaf_cell_number: int = 0
    lazy_preemption_enable: bool = False
    ignores_suggestions: bool = msgspec.field(name="ignoreK8sSuggestedNodes", default=True)
    affinity_group: _AffinityGroup | None = None


def read_request(pod: HivedPod) -> HivedRequest:
    """Return what a pod asks for.

    Raises:
        InvalidInput: it has no such annotation, or one that is no YAML.
        InvalidField: a value is of another type; it says where.
    """
    text = pod.annotation(SCHEDULING_SPEC)
    if not text:
        raise InvalidInput(f"pod {pod.key} has no annotation {SCHEDULING_SPEC}")
    spec = _scheduling_spec(text)
    pods = sum(member.pod_number for member in spec.affinity_group.members) if spec.affinity_group else 1
    if pods > _MOST_PODS:
        raise InvalidInput(
            f"annotation {SCHEDULING_SPEC}: affinityGroup has {pods} pods, expected at most {_MOST_PODS}"
        )
    group = spec.affinity_group or _AffinityGroup(pod.key, (_Member(1, spec.leaf_cell_number),))
    if "#" in group.name:
        # Among the cells of a pool.
        raise InvalidInput(
            f"annotation {SCHEDULING_SPEC}: the affinity group cannot be called {group.name[:80]!r}: names with # are"
            " those of jobs' workers"
        )
    request = GangRequest(
        name=group.name,
        virtual_cluster=spec.virtual_cluster,
        members=tuple((member.pod_number, member.leaf_cell_number) for member in group.members),
        priority=spec.priority,
        leaf_type=spec.leaf_cell_type,
        pin=spec.pinned_cell_id,
        yields=spec.lazy_preemption_enable,
        ignores_suggestions=spec.ignores_suggestions,
    )
    return HivedRequest(request, spec.leaf_cell_number)


@lru_cache(maxsize=256)
def _scheduling_spec(text: str) -> _SchedulingSpec:
    """Return what an annotation says; kube-scheduler asks for a pod several times, and YAML takes its time."""
    return read_annotation(SCHEDULING_SPEC, text, _SchedulingSpec)


def read_annotation(name: str, text: str, kind: type[T]) -> T:
    """Return a record from the YAML of an annotation, old names understood.

    Raises:
        InvalidInput: it is no YAML.
        InvalidField: a value is missing or of another type.
    """
    try:
        document = _with_new_names(yaml_text.read(text))
    except InvalidInput as error:
        raise InvalidInput(f"annotation {name}: {error}") from None
    try:
        return msgspec.convert(document, kind)
    except msgspec.ValidationError as error:
        sentence, _, path = str(error).partition(" - at ")
        field = path.strip("`").removeprefix("$").removeprefix(".")
        where = f"{name}: {field}" if field else name
        raise InvalidField(field, f"annotation {where}: {sentence[0].lower()}{sentence[1:]}") from None


def _with_new_names(value: Any) -> Any:
    if isinstance(value, dict):
        return {_OLD_NAMES.get(key, key): _with_new_names(each) for key, each in value.items()}
    return [_with_new_names(each) for each in value] if isinstance(value, list) else value
