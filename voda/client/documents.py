"""What a client submits, as bodies of requests: a manifest as it is, or the one that a program needs."""

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from voda import config
from voda.client.connection import HttpCall
from voda.client.decoding import decode
from voda.client.http import HttpClient
from voda.domain.errors import InvalidInput, VodaError
from voda.programs.kept_code import clear, is_full, with_kept_code
from voda.programs.program import Program, ProgramStart, start_of
from voda.programs.program_manifest import NVIDIA, WORKING_DIR, program_manifest
from voda.wire.jobs import JobList

Manifest = Mapping[str, Any] | str | bytes | os.PathLike[str] | Program
_PAGE: Final = 100
_MOST_BYTES: Final = 3_000_000
_MOST_NAMES: Final = 100
"""That are tried for a program whose name nobody chose: train, train-2, ..."""
_YAML: Final = "application/yaml"


@dataclass(frozen=True, slots=True)
class SubmitBody:
    body: bytes
    media_type: str


@dataclass(frozen=True, slots=True)
class SubmitPlace:
    """Where it is submitted from, and to."""

    folder: str
    """Where a program begins that names no folder; empty = the server's own choice, on another machine."""
    code: Path
    """Where this user keeps the code of programs."""
    gpu_resource: Callable[[], str]
    """Returns by what pods of the server ask for GPUs; empty: it has none."""


def documents_of(manifest: Manifest, place: SubmitPlace) -> Iterator[SubmitBody]:
    """Yield the document to submit, then those to try while the name of the one before is that of a live job.

    Raises:
        InvalidInput: it cannot be read, or is not what JSON can hold.
    """
    if isinstance(manifest, Program):
        resource = place.gpu_resource() if manifest.image else ""
        manifest = _with_exported(manifest)
        start = start_of(manifest)
        kept = with_kept_code(start.job, place.code)[0] if place.folder and not manifest.live else start.job
        for name in _names(manifest, start):
            job = replace(kept, name=name, gpu_resource=resource or NVIDIA)
            yield _json(_with_options(program_manifest(job), manifest), place.folder)
    elif isinstance(manifest, Mapping):
        yield _json(manifest, place.folder)
    elif isinstance(manifest, str):
        yield SubmitBody(manifest.encode("utf-8", "surrogatepass"), _YAML)
    else:
        yield SubmitBody(manifest if isinstance(manifest, bytes) else _read(manifest), _YAML)


def clear_old_code(http: HttpClient) -> None:
    """Delete the code of programs that this user submitted longest ago, where there is much: none of a live job."""
    if not http.target.is_here or not is_full(store := config.code_folder()):
        return
    used: set[str] = set()
    query: dict[str, str | int] = {"phase": "live", "limit": _PAGE}
    with suppress(VodaError):
        while True:
            page = decode(http.ask_repeatedly(HttpCall(path="/jobs", params=query)).body, JobList)
            used |= {job.kept_script for job in page.items}
            if not page.next or not page.items:
                clear(store, frozenset(used))
                return
            query["continue"] = page.next


def _with_exported(program: Program) -> Program:
    """Return the program with the values of the variables that it gets from here."""
    here = config.environment()
    if absent := next((name for name in program.export if name not in here), ""):
        raise InvalidInput(f"export: there is no variable {absent[:80]!r} here")
    return replace(program, env={**{name: here[name] for name in program.export}, **program.env})


def _names(program: Program, start: ProgramStart) -> Iterator[str]:
    yield start.job.name
    if not program.name:
        yield from (f"{start.job.name}-{number}" for number in range(2, _MOST_NAMES))


def _with_options(manifest: dict[str, Any], program: Program) -> dict[str, Any]:
    """Return the program's manifest with what its user says of the job."""
    options = {"priority": program.priority, "epochs": program.epochs, "pool": program.pool or None}
    options |= {"restartable": program.restartable or None, "array": program.array or None}
    options |= {"virtual-cluster": program.virtual_cluster or None, "pinned-cell": program.pinned_cell or None}
    options |= {"device-class": program.device_class or None, "after": ",".join(program.after) or None}
    given = {f"voda.dev/{name}": str(value) for name, value in options.items() if value is not None}
    metadata = {**manifest["metadata"], "annotations": {**manifest["metadata"]["annotations"], **given}}
    if program.namespace:
        metadata["namespace"] = program.namespace
    if program.labels:
        metadata["labels"] = dict(program.labels)
    return {**manifest, "metadata": metadata}


def _json(manifest: Mapping[str, Any], folder: str) -> SubmitBody:
    try:
        return SubmitBody(json.dumps(_in_folder(manifest, folder), allow_nan=False).encode(), "application/json")
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(f"the manifest is not what JSON can hold: {error}") from error


def _in_folder(manifest: Mapping[str, Any], folder: str) -> Mapping[str, Any]:
    """Return the manifest with the folder where programs begin; the server refuses one of another shape."""
    metadata = manifest.get("metadata")
    annotations = metadata.get("annotations") or {} if isinstance(metadata, Mapping) else None
    if not folder or not isinstance(metadata, Mapping) or not isinstance(annotations, Mapping):
        return dict(manifest)
    return {**manifest, "metadata": {**metadata, "annotations": {WORKING_DIR: folder, **annotations}}}


def _read(file: os.PathLike[str]) -> bytes:
    try:
        with open(file, "rb") as opened:
            body = opened.read(_MOST_BYTES + 1)
    except OSError as error:
        raise InvalidInput(f"{os.fspath(file)} cannot be read: {error.strerror}") from error
    if len(body) > _MOST_BYTES:
        raise InvalidInput(f"{os.fspath(file)} has more than {_MOST_BYTES:,} bytes: that is no manifest")
    return body
