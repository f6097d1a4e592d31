"""Reads a user's job object: whose it is, what it requests, and whether voda may run it.

Rule: pure; anybody who may create objects in the namespace can have written its labels and annotations, and they are
trusted no further than that: of the user's name only where admission has compared it with who asked.
"""

import re
from collections.abc import Iterator, Mapping
from hashlib import sha256
from typing import Any, Final

import msgspec

from voda.cluster.kubernetes import well_known
from voda.cluster.kubernetes.kinds.base import JobKind
from voda.cluster.kubernetes.objects import JobObject, ObjectMeta
from voda.domain.errors import InvalidField
from voda.domain.job import MOST_REPLICAS
from voda.domain.sizes.text import parse_sizes
from voda.kinds.base import OPERATORS, FieldWarning, run_policy_path
from voda.manifests.replicas import FieldText, whole_number

USER: Final = "voda.dev/user"
"""Annotation: for whom the job runs, where an admission policy lets nobody write another's name."""
RECORDED_SPEC: Final = "voda.dev/wishes-taken"
"""Annotation of the job object: which settings of its annotations the log recorded last. The name is released."""
_USER_PATH: Final = f"metadata.annotations[{USER}]"
_USER: Final = re.compile(r"[a-z0-9]([a-z0-9._@-]{0,61}[a-z0-9])?")
_MOST: Final = 1_000_000_000
BOUND_ANNOTATIONS: Final = {"min_replicas": "voda.dev/min-replicas", "max_replicas": "voda.dev/max-replicas"}
"""Bound -> the annotation that wins over the one in the spec."""
_SPEC_FIELDS: Final[Mapping[str, tuple[str, int, int]]] = {
    **{name: (annotation, 1, MOST_REPLICAS) for name, annotation in BOUND_ANNOTATIONS.items()},
    "priority": ("voda.dev/priority", -_MOST, _MOST),
    "epochs": ("voda.dev/epochs", 0, _MOST),
}
"""Setting -> its annotation, least, most."""
_SIZES: Final = "voda.dev/sizes"
_NOTED_ANNOTATIONS: Final = {**{name: key for name, (key, _, _) in _SPEC_FIELDS.items()}, "sizes": _SIZES}
_LONGEST_NOTE: Final = 40
_WRITTEN: Final = frozenset(
    {
        well_known.JOB_ID,
        well_known.WORKER_FAILURES,
        well_known.COUNTED_FAILURES,
        well_known.RECORDED_BOUNDS,
        RECORDED_SPEC,
    }
)
"""Annotations that voda writes."""
RESUMERS: Final = {
    "JobSet": f"put the label {well_known.MANAGED} on the JobSet, and take it off here",
}
"""Kind of an owner that resumes by itself what it made -> what to do."""
_LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"


def foreign_manager(kind: JobKind, job: JobObject) -> str:
    """Return why voda must not run the object, one sentence; empty where it may."""
    managed_by = job.managed_by
    if managed_by and managed_by not in OPERATORS:
        return f"left alone: {run_policy_path(kind.kind)}.managedBy gives it to {managed_by[:80]!r}"
    if job.metadata.labels.get(well_known.KUEUE_QUEUE):
        return f"left alone: its label {well_known.KUEUE_QUEUE} gives it to Kueue; one of the two labels has to go"
    for owner in job.metadata.owner_references:
        if owner.controller and owner.kind in RESUMERS:
            return (
                f"left alone: it belongs to the {owner.kind} {owner.name}, which resumes what voda suspends:"
                f" {RESUMERS[owner.kind]}"
            )
    return ""


def user_of(meta: ObjectMeta, *, is_checked: bool) -> str:
    """Return the user for whom the job runs: the one that its annotation names, else the namespace.

    `is_checked` says whether admission has compared the annotation with who wrote it; it counts for nothing otherwise.
    InvalidField: no user can have that name.
    """
    user = meta.annotations.get(USER) if is_checked else None
    if user is None:
        return meta.namespace
    if not _USER.fullmatch(user):
        raise InvalidField(
            _USER_PATH,
            f"{_USER_PATH}: expected 1 to 63 of a-z, 0-9, '.', '_', '-' and '@', beginning and ending with a letter or"
            f" digit, got {user[:80]!r}",
        )
    return user


def user_warnings(meta: ObjectMeta, *, is_checked: bool) -> Iterator[FieldWarning]:
    """Yield that the name of a user has no effect, where an object has one."""
    if USER in meta.annotations and not is_checked:
        yield FieldWarning(
            field=_USER_PATH,
            message=f"not believed: the job's user is its namespace, {meta.namespace} (cluster.userPolicy is off)",
        )


def manifest_of(found: Mapping[str, Any], kind: JobKind) -> dict[str, Any]:
    """Return the manifest as its user wrote it, as far as possible: without what servers and voda added."""
    meta = found.get("metadata") or {}
    labels = {name: value for name, value in (meta.get("labels") or {}).items() if name != well_known.MANAGED}
    ours = _WRITTEN | {_LAST_APPLIED, USER}
    annotations = {name: value for name, value in (meta.get("annotations") or {}).items() if name not in ours}
    kept: dict[str, Any] = {"name": meta.get("name"), "namespace": meta.get("namespace")}
    kept |= {"labels": labels} if labels else {}
    kept |= {"annotations": annotations} if annotations else {}
    spec = found.get("spec")
    return {"apiVersion": kind.api_version, "kind": kind.name, "metadata": kept, "spec": spec}


def fingerprint(job: JobObject) -> str:
    """Return a text that differs whenever the user changed the object; the status and what voda writes are left out."""
    meta = job.metadata
    said = {name: value for name, value in meta.annotations.items() if name not in _WRITTEN}
    managed_by = job.managed_by
    parts = (meta.uid, meta.generation, sorted(meta.labels.items()), sorted(said.items()), managed_by)
    return msgspec.json.encode(parts).decode()


def spec_text(annotations: Mapping[str, str]) -> str:
    """Return the settings that annotations hold, in one line; equal texts are equal settings."""
    held = ((name, annotations.get(key)) for name, key in _NOTED_ANNOTATIONS.items())
    return ",".join(f"{name}={_note(value)}" for name, value in held if value is not None)


def _note(value: str) -> str:
    """Return a value as `spec_text` has it: where it is long, by its hash."""
    text = value.strip().replace(",", ";")
    return text if len(text) <= _LONGEST_NOTE else sha256(text.encode()).hexdigest()[:_LONGEST_NOTE]


def changed_fields(annotations: Mapping[str, str], recorded: str) -> Mapping[str, int | str]:
    """Return the settings that differ from `spec_text` of before: name of a field of `JobPatch` -> its value.

    A setting that is no number, or no sizes, or out of bounds, raises InvalidField.
    """
    before = dict(pair.partition("=")[::2] for pair in recorded.split(",") if pair)
    changed = {
        name
        for name, key in _NOTED_ANNOTATIONS.items()
        if (value := annotations.get(key)) is not None and _note(value) != before.get(name)
    }
    found: dict[str, int | str] = {}
    if "sizes" in changed:
        found["sizes"] = str(parse_sizes(annotations[_SIZES], f"metadata.annotations[{_SIZES}]"))
        # New sizes bring their own bounds, unless annotations say others.
        changed |= {name for name, key in BOUND_ANNOTATIONS.items() if key in annotations}
    for name, (key, least, most) in _SPEC_FIELDS.items():
        if name in changed:
            field = FieldText(annotations[key], f"metadata.annotations[{key}]")
            found[name] = whole_number(field, least=least, most=most)
    return found


def recorded_text(job: JobObject, manifest: Mapping[str, Any] | None) -> str:
    """Return the settings that the log has recorded: noted on the object, else those that it was submitted with."""
    noted = job.metadata.annotations.get(RECORDED_SPEC)
    if noted is not None:
        return noted
    meta = (manifest or {}).get("metadata") or {}
    return spec_text(meta.get("annotations") or {})
