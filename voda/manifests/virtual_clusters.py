"""Reads and writes files of virtual clusters: HiveD's configuration as it is, and the shorter words that voda adds.

    virtualClusters:
      vision: {cells: {node: 2}, members: [ada, bob], policy: elastic-srjf}

Rule: a refusal names the line; what only HiveD's own processes need is left out, and said.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, NamedTuple

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from voda.domain.cells import (
    CellsSpec,
    CellTypeSpec,
    PhysicalCellSpec,
    PhysicalClusterSpec,
    PinSpec,
    QuotaSpec,
    VirtualClusterSpec,
)
from voda.domain.errors import InvalidField
from voda.manifests import names, text, yaml_text
from voda.manifests.yaml_writer import manifest_yaml

_OF_HIVED: Final = (
    "kube_api_server_address",
    "kube_config_file_path",
    "web_server_address",
    "force_pod_bind_threshold",
    "waiting_pod_scheduling_block_milli_sec",
)
_ANY_KEY: Final = "[...]"
_Name = Annotated[str, Meta(min_length=1)]
_Number = Annotated[int, Meta(ge=0, le=1_000_000)]


class _ClusterInFile(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """A virtual cluster in HiveD's words, ours, or both."""

    cells: Mapping[_Name, _Number] = {}
    """Cell type -> number: `virtualCells` in short."""
    pins: tuple[_Name, ...] = ()
    """`pinnedCells` in short."""
    virtual_cells: tuple[QuotaSpec, ...] = ()
    pinned_cells: tuple[PinSpec, ...] = ()
    members: tuple[_Name, ...] | None = None
    policy: str = ""

    def spec(self) -> VirtualClusterSpec:
        quotas = (QuotaSpec(cell_type=kind, cell_number=number) for kind, number in self.cells.items())
        spec = VirtualClusterSpec(
            virtual_cells=(*self.virtual_cells, *quotas),
            pinned_cells=(*self.pinned_cells, *(PinSpec(pinned_cell_id=pin) for pin in self.pins)),
            policy=self.policy,
        )
        return spec if self.members is None else replace(spec, members=self.members)


class _ClustersFile(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    pool: str = ""
    physical_cluster: PhysicalClusterSpec = PhysicalClusterSpec()
    virtual_clusters: Mapping[str, _ClusterInFile] = {}
    kube_api_server_address: str | None = None
    kube_config_file_path: str | None = None
    web_server_address: str | None = None
    force_pod_bind_threshold: int | None = None
    waiting_pod_scheduling_block_milli_sec: int | None = None


_RECORDS: Final[Mapping[str | int, type[Struct]]] = {
    "physicalCluster": PhysicalClusterSpec,
    "cellTypes": CellTypeSpec,
    "physicalCells": PhysicalCellSpec,
    "cellChildren": PhysicalCellSpec,
    "virtualClusters": _ClusterInFile,
    "virtualCells": QuotaSpec,
    "pinnedCells": PinSpec,
}
"""Key of a file -> what is below it."""


class VirtualClustersFile(NamedTuple):
    """What a file says."""

    cells: CellsSpec
    pool: str = ""
    """Empty: it names none."""
    left_out: tuple[str, ...] = ()
    """Keys that only HiveD's own processes need."""


def read_virtual_clusters(body: bytes) -> VirtualClustersFile:
    """Return what a file of virtual clusters says, YAML or JSON.

    Raises:
        InvalidInput: it is neither.
        InvalidField: a key is unknown, a value wrong or missing; it says in which line.
    """
    document = text.read(body, expected="a mapping with virtualClusters")
    try:
        file = msgspec.convert(document, _ClustersFile)
    except msgspec.ValidationError as error:
        raise _wrong(document, str(error), body) from None
    for name in file.virtual_clusters:
        _checked(body, ("virtualClusters", name), name)
    if file.pool:
        names.pool(file.pool, "pool")
    cells = CellsSpec(
        physical_cluster=file.physical_cluster,
        virtual_clusters={name: each.spec() for name, each in file.virtual_clusters.items()},
    )
    fields = {field.name: field.encode_name for field in msgspec.structs.fields(_ClustersFile)}
    left_out = tuple(fields[name] for name in _OF_HIVED if getattr(file, name) is not None)
    return VirtualClustersFile(cells, file.pool, left_out)


def virtual_clusters_yaml(cells: CellsSpec, pool: str = "") -> str:
    """Return a file that reads back the same, in HiveD's words where HiveD has some."""
    document: dict[str, Any] = {"pool": pool} if pool else {}
    return manifest_yaml({**document, **msgspec.to_builtins(cells)})


def _checked(body: bytes, keys: Sequence[str], name: str) -> None:
    try:
        names.pool(name, ".".join(keys))
    except InvalidField as error:
        raise InvalidField(error.field, f"{_line(body, keys)}{error}") from None


def _wrong(document: Mapping[str, Any], report: str, body: bytes) -> InvalidField:
    """Return the error for the user from what msgspec reports."""
    complaint, _, where = report.partition(" - at ")
    keys = _keys(document, where.strip("`").removeprefix("$"), report)
    field = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in keys).removeprefix(".")
    if unknown := _quoted(complaint, "Object contains unknown field "):
        expected = ", ".join(_known_keys(keys))
        owner = field or "the file"
        line = _line(body, (*keys, unknown))
        path = f"{field}.{unknown}".removeprefix(".")
        return InvalidField(path[:200], f"{line}{owner} has {unknown[:80]!r}, which is unknown: expected {expected}")
    sentence = f"{complaint[0].lower()}{complaint[1:]}"
    return InvalidField(field[:200], f"{_line(body, keys)}{field or 'the file'}: {sentence}")


def _quoted(complaint: str, prefix: str) -> str:
    return complaint.removeprefix(prefix).strip("`") if complaint.startswith(prefix) else ""


def _known_keys(keys: Sequence[str | int]) -> list[str]:
    """Return the keys of the record at a path."""
    record = next((_RECORDS[key] for key in reversed(keys) if key in _RECORDS), _ClustersFile)
    return [field.encode_name for field in msgspec.structs.fields(record)]


def _keys(document: Any, where: str, report: str) -> tuple[str | int, ...]:
    """Return the keys of a path of msgspec; [...] there is the key that alone is refused in the same way."""
    keys: list[str | int] = []
    place, rest = document, where
    while rest:
        if rest.startswith(_ANY_KEY):
            key: str | int = _first_wrong(document, keys, place, report)
            rest = rest[len(_ANY_KEY) :]
        elif rest.startswith("["):
            index, _, rest = rest[1:].partition("]")
            key = int(index)
        else:
            end = min((at for at in (rest.find(".", 1), rest.find("[", 1)) if at > 0), default=len(rest))
            key, rest = rest[1:end], rest[end:]
        keys.append(key)
        place = place[key]
    return tuple(keys)


def _first_wrong(document: Any, keys: Sequence[str | int], place: Mapping[str, Any], report: str) -> str:
    for key, value in place.items():
        try:
            msgspec.convert(_with_only(document, keys, {key: value}), _ClustersFile)
        except msgspec.ValidationError as error:
            if str(error) == report:
                return key
    return next(iter(place))


def _with_only(document: Any, keys: Sequence[str | int], value: Mapping[str, Any]) -> Any:
    """Return the document with another mapping at a path; the other values of lists and mappings on the way stay."""
    if not keys:
        return value
    first, rest = keys[0], keys[1:]
    changed = _with_only(document[first], rest, value)
    if isinstance(document, list):
        return [changed if index == first else each for index, each in enumerate(document)]
    return {**document, first: changed}


def _line(body: bytes, keys: Sequence[str | int]) -> str:
    """Return the line of a value, as a beginning of a sentence; empty where the file is JSON that is no YAML."""
    try:
        return f"line {yaml_text.line_of(body.decode('utf-8-sig'), keys)}: "
    except yaml_text.NotYaml:
        return ""
