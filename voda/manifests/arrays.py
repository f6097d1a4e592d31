"""Annotations about several jobs: which others a job comes after, and its array.

`voda.dev/array` alone is the array itself, which the API submits as many jobs; with `voda.dev/array-task` the manifest
is one task of it, as it is recorded and as an object of the cluster says it.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from msgspec.structs import replace

from voda.domain.dependency import DependencyRequest, parse_dependencies
from voda.domain.errors import InvalidField, InvalidInput
from voda.domain.job import JobSpec
from voda.domain.job_array import MOST_INDEX, ArrayRange, ArrayTask, indices_of, parse_array
from voda.manifests.replicas import JobSettings, whole_number

ARRAY: Final = "voda.dev/array"
ARRAY_NAME: Final = "voda.dev/array-name"
ARRAY_TASK: Final = "voda.dev/array-task"
_PATH: Final = "metadata.annotations[{}]"


def dependencies(settings: JobSettings) -> Sequence[DependencyRequest]:
    """Return the jobs that a job comes after; raises InvalidField."""
    if (field := settings.get("after")) is None:
        return ()
    try:
        return parse_dependencies(field.text)
    except InvalidInput as error:
        raise InvalidField(field.path, f"{field.path}: {error}") from error


def array_range(settings: JobSettings) -> ArrayRange | None:
    """Return the tasks of the array that a manifest is about; raises InvalidField."""
    if (field := settings.get("array")) is None:
        return None
    try:
        return parse_array(field.text)
    except InvalidInput as error:
        raise InvalidField(field.path, f"{field.path}: {error}") from error


def array_task(settings: JobSettings, tasks: ArrayRange | None) -> ArrayTask | None:
    """Return which task of its array a manifest is, without the array's id; None: it is none, or the whole array."""
    field, name = settings.get("array_task"), settings.get("array_name")
    if field is None or name is None:
        if field is not None or name is not None:
            lacks = ARRAY_NAME if name is None else ARRAY_TASK
            path = _PATH.format(lacks)
            raise InvalidField(path, f"{path} is missing: a task of an array has {ARRAY_NAME} and {ARRAY_TASK}")
        return None
    if tasks is None:
        path = _PATH.format(ARRAY)
        raise InvalidField(path, f"{path} is missing: a task of an array says which tasks there are, such as 0-99%10")
    index = whole_number(field, least=0, most=MOST_INDEX)
    if index not in indices_of(tasks.indices):
        raise InvalidField(field.path, f"{field.path}: expected one of {tasks.indices}, as {ARRAY} says, got {index}")
    if not 0 < len(name.text) <= 63 or not name.text.isprintable():
        raise InvalidField(name.path, f"{name.path}: expected a name of 1 to 63 characters, got {name.text[:60]!r}")
    return ArrayTask(array_id="", name=name.text, index=index, indices=tasks.indices, at_once=tasks.at_once)


def task_specs(spec: JobSpec, tasks: ArrayRange) -> Iterator[JobSpec]:
    """Yield the jobs of an array, from the lowest index on; `spec` is that of its manifest."""
    for index in indices_of(tasks.indices):
        name = f"{spec.name}-{index}"
        task = ArrayTask(array_id="", name=spec.name, index=index, indices=tasks.indices, at_once=tasks.at_once)
        yield replace(spec, job_id=name, name=name, array=task, manifest=_task_manifest(spec, name, index))


def without_array(manifest: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the manifest of a task as that of an ordinary job."""
    metadata = manifest.get("metadata") or {}
    own = {ARRAY, ARRAY_NAME, ARRAY_TASK}
    annotations = {name: text for name, text in (metadata.get("annotations") or {}).items() if name not in own}
    return {**manifest, "metadata": {**metadata, "annotations": annotations}}


def _task_manifest(spec: JobSpec, name: str, index: int) -> Mapping[str, Any]:
    manifest = spec.manifest or {}
    metadata = manifest.get("metadata") or {}
    own = {ARRAY_NAME: spec.name, ARRAY_TASK: str(index)}
    annotations = {**(metadata.get("annotations") or {}), **own}
    return {**manifest, "metadata": {**metadata, "name": name, "annotations": annotations}}
