"""Manifests on their way to the server: read from files, cut into documents, and given what the options say.

Rule: what is sent is what was written, but for annotations and the name that the user asked for.
"""

import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from voda.domain.errors import AlreadyExists, InvalidField, InvalidInput, PermanentError
from voda.programs.program_manifest import WORKING_DIR

_MARKER = re.compile(r"^---(?=\s|$)", re.MULTILINE)
_MOST_BYTES = 20_000_000
STDIN = "-"
_AFTER = "voda.dev/after"
_OPTIONS = {
    "voda.dev/min-replicas": "--min",
    "voda.dev/max-replicas": "--max",
    "voda.dev/sizes": "--workers",
    "voda.dev/priority": "--priority",
    "voda.dev/epochs": "--epochs",
    "voda.dev/pool": "--pool",
    "voda.dev/virtual-cluster": "--vc",
    "voda.dev/pinned-cell": "--pin",
    "voda.dev/array": "--array",
    "voda.dev/after": "--after",
}
"""Annotation -> the option that sets it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    source: str
    """Its file, and which one in it, for messages."""
    manifest: dict[str, Any]
    options: Mapping[str, str] = field(default_factory=dict)
    """Field -> the option of the command line that set it, for messages."""

    def explain(self, error: PermanentError) -> PermanentError:
        """Return the error of the server with the document that it is about, and options by their names."""
        message = str(error)
        for path, option in self.options.items():
            message = message.replace(path, option)
        message = f"{self.source}: {message}"
        return InvalidField(error.field, message) if isinstance(error, InvalidField) else type(error)(message)


@dataclass(frozen=True, slots=True)
class ReadManifests:
    """What files hold: manifests, and why those that cannot be read cannot."""

    documents: Sequence[Document]
    refused: Sequence[PermanentError] = ()


def read_manifests(files: Sequence[str]) -> ReadManifests:
    """Return the manifests of files; `-` is standard input."""
    documents: list[Document] = []
    refused: list[PermanentError] = []
    for file in files:
        try:
            for one in _documents(file):
                if isinstance(one, Document):
                    documents.append(one)
                else:
                    refused.append(one)
        except InvalidInput as error:
            refused.append(error)
    return ReadManifests(documents, refused)


def jobs_of(read: ReadManifests) -> tuple[ReadManifests, Sequence[str]]:
    """Return the jobs among manifests, and what else Kubernetes makes of the others, such as `ConfigMap train`.

    Where none is a job, or somebody else's operator would run it, all of them are returned.
    """
    from voda.kinds.registry import KINDS

    jobs = [each for each in read.documents if str(each.manifest.get("kind")) in KINDS]
    others = [
        each.manifest
        for each in read.documents
        if str(each.manifest.get("kind")) not in KINDS and _is_of_kubernetes(each.manifest)
    ]
    if not jobs or len(jobs) + len(others) < len(read.documents):
        return read, ()
    names = [f"{each['kind']:.80} {(_full_name_of(each) or ('', '?'))[1]:.80}" for each in others]
    return replace(read, documents=jobs), names


def _is_of_kubernetes(manifest: Mapping[str, Any]) -> bool:
    """Return whether a manifest is of a kind that is Kubernetes' own: v1, apps/v1, rbac.authorization.k8s.io/v1."""
    group = str(manifest.get("apiVersion")).rpartition("/")[0]
    return isinstance(manifest.get("kind"), str) and ("." not in group or group.endswith(".k8s.io"))


def changed(read: ReadManifests, change: Callable[[Document], Document]) -> ReadManifests:
    """Return the manifests with a change, which may raise InvalidInput."""
    documents: list[Document] = []
    refused = [*read.refused]
    for one in read.documents:
        try:
            documents.append(change(one))
        except InvalidInput as error:
            refused.append(error)
    return ReadManifests(documents, refused)


def _documents(file: str) -> Iterator[Document | InvalidInput]:
    """Yield each manifest of a file, or why it cannot be read; raises InvalidInput where the file holds none."""
    from voda.manifests import text

    body = read_text(file)
    name = "standard input" if file == STDIN else file
    chunks = list(_chunks(body, name))
    if not chunks:
        raise InvalidInput(f"{name} holds no manifest: expected YAML or JSON of an MPIJob or a PyTorchJob")
    for number, chunk in enumerate(chunks, 1):
        source = name if len(chunks) == 1 else f"{name}, document {number}"
        try:
            yield Document(source=source, manifest=text.read(chunk))
        except InvalidField as error:
            yield InvalidField(error.field, f"{source}: {error}")
        except InvalidInput as error:
            yield InvalidInput(f"{source}: {error}")


def with_name_and_annotations(document: Document, *, name: str, annotations: Mapping[str, str]) -> Document:
    """Return the document with this name and these annotations; empty = as it is."""
    manifest = dict(document.manifest)
    if not name and not annotations:
        return document
    metadata = _mapping(manifest.get("metadata"), "metadata", document)
    if name:
        metadata["name"] = name
    if annotations:
        metadata["annotations"] = {
            **_mapping(metadata.get("annotations"), "metadata.annotations", document),
            **annotations,
        }
    options = {f"metadata.annotations[{key}]": _OPTIONS[key] for key in annotations if key in _OPTIONS}
    options |= {"metadata.name": "--name"} if name else {}
    return replace(document, manifest={**manifest, "metadata": metadata}, options={**document.options, **options})


def with_sizes_of(document: Document, config: Path) -> Document:
    """Return the document with the sizes of a DeepSpeed configuration, in workers of as many GPUs as it says."""
    from voda.manifests.conversion import typed_manifest
    from voda.manifests.replicas import gpus_per_replica, processes_per_replica
    from voda.programs.deepspeed import sizes_of_config

    job = typed_manifest(document.manifest)
    sizes = sizes_of_config(config, processes_per_replica(job, gpus_per_replica(job)))
    return with_name_and_annotations(document, name="", annotations={"voda.dev/sizes": str(sizes)})


def with_labels(document: Document, labels: Mapping[str, str]) -> Document:
    """Return the document with these labels beside its own."""
    if not labels:
        return document
    metadata = _mapping(document.manifest.get("metadata"), "metadata", document)
    known = _mapping(metadata.get("labels"), "metadata.labels", document)
    manifest = {**document.manifest, "metadata": {**metadata, "labels": {**known, **labels}}}
    options = {f"metadata.labels[{key}]": f"--label {key}" for key in labels}
    return replace(document, manifest=manifest, options={**document.options, **options})


def key_and_value(label: str) -> tuple[str, str]:
    """Return a label of the command line, KEY=VALUE; InvalidInput where it is something else."""
    key, sign, value = label.partition("=")
    if not sign or not key:
        raise InvalidInput(f"--label: expected KEY=VALUE, such as team=vision, got {label[:80]!r}")
    return key, value


def in_namespace(document: Document, namespace: str) -> Document:
    """Return the document in this namespace, empty = where it is; InvalidField where it names another one."""
    if not namespace:
        return document
    metadata = _mapping(document.manifest.get("metadata"), "metadata", document)
    if (named := metadata.get("namespace")) not in (None, "", namespace):
        field = "metadata.namespace"
        raise InvalidField(field, f"{document.source}: {field}: expected {namespace!r}, as asked, got {named!r:.80}")
    manifest = {**document.manifest, "metadata": {**metadata, "namespace": namespace}}
    return replace(document, manifest=manifest)


def refuse_second_name(document: Document, before: Sequence[Document]) -> None:
    """Raise AlreadyExists where an earlier document has the name of this one."""
    for other in before:
        if (name := _full_name(document)) is not None and name == _full_name(other):
            raise AlreadyExists(f"{document.source}: metadata.name: {name[1]!r:.80} is also the name of {other.source}")


def without_dependencies_on(document: Document, before: Sequence[Document]) -> Document:
    """Return the document without the jobs that it comes after and that earlier documents describe."""
    from voda.domain.dependency import parse_dependencies

    metadata = document.manifest.get("metadata")
    annotations = metadata.get("annotations") if isinstance(metadata, dict) else None
    written = annotations.get(_AFTER) if isinstance(annotations, dict) else None
    names = {name[1] for one in before if (name := _full_name(one)) is not None}
    try:
        requests = parse_dependencies(written) if isinstance(written, str) else ()
    except InvalidInput:
        return document
    if not any(request.name in names for request in requests):
        return document
    left = ",".join(request.text for request in requests if request.name not in names)
    return with_name_and_annotations(document, name="", annotations={_AFTER: left})


def _full_name(document: Document) -> tuple[object, str] | None:
    """Return namespace and name; None where it has none that could be one."""
    return _full_name_of(document.manifest)


def _full_name_of(manifest: Mapping[str, Any]) -> tuple[object, str] | None:
    metadata = manifest.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    return (metadata.get("namespace") or "default", name) if isinstance(name, str) and metadata else None


def with_working_dir(document: Document, folder: str) -> Document:
    """Return the document with the folder its programs begin in, where one of its containers names none."""
    if all(container.get("workingDir") for container in _containers(document.manifest)):
        return document
    metadata = document.manifest.get("metadata")
    known = metadata.get("annotations") if isinstance(metadata, dict) else None
    if isinstance(known, dict) and WORKING_DIR in known:
        return document
    return with_name_and_annotations(document, name="", annotations={WORKING_DIR: folder})


def read_text(file: str) -> str:
    """Return the text of a file, or of standard input; raises InvalidInput."""
    try:
        if file == STDIN:
            body = sys.stdin.buffer.read(_MOST_BYTES + 1)
        else:
            with open(file, "rb") as opened:
                body = opened.read(_MOST_BYTES + 1)
    except FileNotFoundError:
        raise InvalidInput(f"{file}: there is no such file") from None
    except OSError as error:
        raise InvalidInput(f"{file} cannot be read: {error.strerror}") from error
    if len(body) > _MOST_BYTES:
        raise InvalidInput(f"{file} has more than {_MOST_BYTES:,} bytes: that is no manifest")
    try:
        return body.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{file} is no UTF-8 text (byte {error.start})") from error


def _chunks(body: str, name: str) -> Iterator[bytes]:
    """Yield each document, with empty lines before it so that lines are counted as in the file."""
    begins = [0, *(marker.end() for marker in _MARKER.finditer(body))]
    ends = [*(marker.start() for marker in _MARKER.finditer(body)), len(body)]
    for begin, end in zip(begins, ends, strict=True):
        chunk = body[begin:end]
        if any(line.strip() and not line.lstrip().startswith(("#", "%")) for line in chunk.splitlines()):
            yield ("\n" * body.count("\n", 0, begin) + chunk).encode()


def _containers(manifest: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """Return the containers of every replica; what has another shape is left to the server to refuse."""
    try:
        roles = next(value for key, value in manifest["spec"].items() if key.lower().endswith("replicaspecs"))
        found = [container for role in roles.values() for container in role["template"]["spec"]["containers"]]
    except (KeyError, TypeError, AttributeError, StopIteration):
        return ()
    return [container for container in found if isinstance(container, dict)]


def _mapping(value: object, field: str, document: Document) -> dict[str, Any]:
    if value is not None and not isinstance(value, dict):
        raise InvalidField(field, f"{document.source}: {field}: expected a mapping")
    return dict(value or {})
