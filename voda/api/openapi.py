"""Makes the OpenAPI 3.1 document from the operations and the types of their bodies and answers.

Rule: nothing is written twice: bounds and the descriptions of fields come from the types' `Meta`.
"""

import re
from collections.abc import Iterable, Mapping, Sequence, Set
from http import HTTPStatus
from typing import Any, Final

import msgspec
from msgspec import Struct

from voda import __version__
from voda.api.operation import JSON, PROBLEM, PUBLIC, YAML, Operation, RequestBody
from voda.api.problems import STATUS_HEADERS, STATUS_MEANINGS
from voda.api.read_your_writes import AFTER, AFTER_DESCRIPTION, takes_position
from voda.placement import PLACERS
from voda.policies import POLICIES
from voda.policies.toolkit.parameters import parameter_schemas
from voda.wire.base import Problem

Json = dict[str, Any]

_ABOUT: Final = """\
Submit elastic training, watch it grow and shrink, and ask why.

Every call under /api/v1, and the ancestor's, needs a token: `Authorization: Bearer TOKEN`.
The admin's is the file `admin.token` of the data folder, or of the Secret that `voda serve` mounts.
`voda token create NAME` makes others. At the Unix socket of a `voda up` that root runs none is
needed: the account of the calling process counts.

Errors are `application/problem+json`. Whatever can be asked with GET, HEAD asks without the body.
"""
_TAGS: Final = {
    "Jobs": "What is to be trained, and what became of it.",
    "Nodes": "The machines and their GPUs.",
    "Pods": "On Kubernetes, pods that ask for GPUs or parts of them.",
    "Pools": "Pools of nodes, how they are decided, and their plans.",
    "Virtual clusters": "Who is guaranteed which cells: GPUs with their topology.",
    "Events": "The log: all that ever happened, and what happens.",
    "Service": "The server itself.",
    "HiveD": "kube-scheduler's extender and the inspection of microsoft/hivedscheduler.",
    "Extender": "kube-scheduler's extender for pods that share GPUs, as elastic-gpu-scheduler had it.",
    "Ancestor": "The endpoints of heyfey/vodascheduler, so that its scripts keep working.",
}
_OF_HTTP: Final = frozenset({400})
_OF_TOKEN: Final = frozenset({401, 403, 422, 429, 503})
_OF_BODY: Final = frozenset({413, 415})
_OF_WRITE: Final = frozenset({503, 507})
"""Problems that every operation may have; that one may have that takes a token, or a body, or writes to the log."""
_PARAMETER: Final = re.compile(r"\{(?P<name>\w+)(:(?P<pattern>[^{}]*(?:\{[^{}]*\}[^{}]*)*))?\}")
_CHOICES: Final[Mapping[tuple[str, str], Iterable[str]]] = {
    ("SettingsChange", "policy"): POLICIES,
    ("SettingsChange", "placer"): PLACERS,
}
"""Fields whose values are found by file."""
_WITH_PARAMETERS: Final = ("Settings", "SettingsChange")
"""Records whose field `parameters` has those of every policy."""
_MPI_JOB: Final[Json] = msgspec.yaml.decode("""
apiVersion: kubeflow.org/v2beta1
kind: MPIJob
metadata:
  name: digits
  annotations: {voda.dev/min-replicas: "1", voda.dev/max-replicas: "4", voda.dev/epochs: "20"}
spec:
  slotsPerWorker: 1
  mpiReplicaSpecs:
    Launcher:
      replicas: 1
      template:
        spec:
          containers:
          - name: launcher
            image: python:3.11
            command: [voda, run, --max-np, "4", --, python, train.py]
    Worker:
      replicas: 1
      template: {spec: {containers: [{name: worker, image: "python:3.11"}]}}
""")
_PYTORCH_JOB: Final[Json] = msgspec.yaml.decode("""
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata:
  name: digits-torch
  annotations: {voda.dev/epochs: "20"}
spec:
  elasticPolicy: {minReplicas: 1, maxReplicas: 4}
  pytorchReplicaSpecs:
    Worker:
      replicas: 1
      template: {spec: {containers: [{name: pytorch, image: pytorch/pytorch, command: [torchrun, train.py]}]}}
""")
EXAMPLES: Final[dict[str, dict[str, Json]]] = {
    "submitJob": {
        YAML: {"mpi": {"summary": "An MPIJob of 1 to 4 workers", "value": _MPI_JOB}},
        JSON: {"pytorch": {"summary": "A PyTorchJob of 1 to 4 workers", "value": _PYTORCH_JOB}},
    },
    "createTraining": {YAML: {"mpi": {"summary": "An MPIJob of 1 to 4 workers", "value": _MPI_JOB}}},
    "changeJob": {JSON: {"grow": {"summary": "Let it grow further", "value": {"max_replicas": 8, "priority": 1}}}},
    "applyVirtualClusters": {
        YAML: {
            "nodes": {
                "summary": "One node for each of two teams",
                "value": {
                    "virtualClusters": {
                        "vision": {"cells": {"node": 1}, "members": ["ada"]},
                        "speech": {"cells": {"node": 1}, "members": ["bob"]},
                    }
                },
            }
        }
    },
    "reportProgress": {
        JSON: {
            "epoch": {
                "summary": "The third epoch is done",
                "value": {"epoch": 3, "epoch_time_s": 12.5, "workers": 4, "metrics": {"accuracy": 0.91}},
            }
        }
    },
    "changeSettings": {
        JSON: {"policy": {"summary": "Another policy", "value": {"policy": "elastic-tiresias", "ratelimit_s": 10}}}
    },
}
"""Of bodies, shown at /docs too; tests submit them: operation -> media type -> name -> example."""
_REF: Final = "#/components/schemas/{name}"


def document(operations: Sequence[Operation]) -> Json:
    """Return the OpenAPI document of the operations."""
    records = _records(operations)
    schemas, components = msgspec.json.schema_components(records, ref_template=_REF)
    schema_of = dict(zip(records, schemas, strict=True))
    _complete(components)
    components = {_component(name): {**schema, "title": _component(name)} for name, schema in components.items()}
    paths: dict[str, Json] = {}
    for operation in operations:
        path = _PARAMETER.sub(lambda match: f"{{{match['name']}}}", operation.path)
        paths.setdefault(path, {})[operation.method.lower()] = _operation(operation, schema_of)
    tags = {operation.tag for operation in operations}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "voda",
            "version": __version__,
            "description": _ABOUT,
            "license": {"name": "Apache 2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "tags": [{"name": tag, "description": text} for tag, text in _TAGS.items() if tag in tags]
        + [{"name": tag} for tag in sorted(tags - _TAGS.keys())],
        "paths": _with_component_names(paths),
        "components": {
            "schemas": _with_component_names(components),
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
        },
    }


def _component(record: str) -> str:
    return record.removesuffix("View")


def _with_component_names(value: Any) -> Any:
    """Return a part of the document with every reference to a record by its component's name."""
    if isinstance(value, dict):
        return {
            key: _REF.format(name=_component(item.rpartition("/")[2])) if key == "$ref" else _with_component_names(item)
            for key, item in value.items()
        }
    return [_with_component_names(item) for item in value] if isinstance(value, list) else value


def _records(operations: Sequence[Operation]) -> list[Any]:
    """Return every type that travels, each once."""
    found: dict[Any, None] = {Problem: None}
    for operation in operations:
        bodies = [operation.body.of] if operation.body else []
        found |= dict.fromkeys([*bodies, *(answer.of for answer in operation.answers)])
    return [record for record in found if record is not None]


def _operation(operation: Operation, schema_of: Mapping[Any, Json]) -> Json:
    shown: Json = {
        "operationId": operation.name,
        "summary": operation.summary,
        "tags": [operation.tag] if operation.tag else [],
        "parameters": _parameters(operation),
        "responses": _responses(operation, schema_of),
        "security": [] if operation.roles == PUBLIC else [{"bearer": []}],
    }
    roles = "" if operation.roles == PUBLIC else f"For: {', '.join(sorted(operation.roles))}."
    if description := "\n\n".join(part for part in (operation.description, roles) if part):
        shown["description"] = description
    if operation.body is not None:
        shown["requestBody"] = _body(operation.name, operation.body, schema_of)
    return shown


def _parameters(operation: Operation) -> list[Json]:
    found = [_in_path(match, operation.path_parameters) for match in _PARAMETER.finditer(operation.path)]
    if operation.query is not None:
        found += _in_query(operation.query)
    if takes_position(operation):
        position: Json = {"type": "integer", "minimum": 0}
        found.append({"name": AFTER, "in": "query", "description": AFTER_DESCRIPTION, "schema": position})
    for name, description in operation.headers.items():
        found.append({"name": name, "in": "header", "description": description, "schema": {"type": "string"}})
    return found


def _in_path(match: re.Match[str], described: Mapping[str, str]) -> Json:
    schema: Json = {"type": "string", "minLength": 1}
    if (pattern := match["pattern"]) is not None:
        schema["pattern"] = f"^{pattern}$"
    shown = {"name": match["name"], "in": "path", "required": True, "schema": schema}
    return {**shown, "description": described[match["name"]]} if match["name"] in described else shown


def _in_query(query: type[Struct]) -> list[Json]:
    _, components = msgspec.json.schema_components([query], ref_template=_REF)
    own = components.pop(query.__name__)
    found = []
    for name, schema in own["properties"].items():
        schema = _not_null(_inline_refs(schema, components))
        shown = {"name": name, "in": "query", "required": name in own.get("required", ())}
        if description := schema.pop("description", ""):
            shown["description"] = description
        found.append({**shown, "schema": schema})
    return found


def _inline_refs(schema: Any, components: Mapping[str, Json]) -> Any:
    """Return the schema with what it refers to in its place."""
    if isinstance(schema, dict):
        if (ref := schema.get("$ref")) is not None:
            rest = {key: value for key, value in schema.items() if key != "$ref"}
            return {**_inline_refs(components[ref.rpartition("/")[2]], components), **rest}
        return {key: _inline_refs(value, components) for key, value in schema.items()}
    return [_inline_refs(item, components) for item in schema] if isinstance(schema, list) else schema


def _not_null(schema: Json) -> Json:
    """Return the schema of a parameter: to leave it out is the only way to say nothing."""
    if "anyOf" not in schema:
        return schema
    kinds = [kind for kind in schema["anyOf"] if kind != {"type": "null"}]
    rest = {key: value for key, value in schema.items() if key != "anyOf" and (key, value) != ("default", None)}
    return {**kinds[0], **rest} if len(kinds) == 1 else {**rest, "anyOf": kinds}


def _body(name: str, body: RequestBody, schema_of: Mapping[Any, Json]) -> Json:
    content = {}
    for media_type in body.media_types:
        content[media_type] = {"schema": _content(body.of, media_type, schema_of)}
        if examples := EXAMPLES.get(name, {}).get(media_type):
            content[media_type]["examples"] = examples
    shown: Json = {"required": body.is_required, "content": content}
    return {**shown, "description": body.description} if body.description else shown


def _responses(operation: Operation, schema_of: Mapping[Any, Json]) -> Json:
    found: Json = {}
    for answer in operation.answers:
        shown = found.setdefault(str(answer.status), {"description": answer.description or _phrase(answer.status)})
        if answer.headers:
            headers = {
                name: {"description": said, "schema": {"type": "string"}} for name, said in answer.headers.items()
            }
            shown["headers"] = {**shown.get("headers", {}), **headers}
        if answer.media_type:
            shown.setdefault("content", {})[answer.media_type] = {
                "schema": _content(answer.of, answer.media_type, schema_of)
            }
    for status in sorted(_problems(operation)):
        found[str(status)] = _problem(status, schema_of)
    return found


def _problems(operation: Operation) -> Set[int]:
    of_token = frozenset() if operation.roles == PUBLIC else _OF_TOKEN
    of_body = frozenset() if operation.body is None else _OF_BODY
    of_write = frozenset() if operation.method == "GET" else _OF_WRITE
    return _OF_HTTP | of_token | of_body | of_write | set(operation.problems)


def _problem(status: int, schema_of: Mapping[Any, Json]) -> Json:
    shown: Json = {
        "description": STATUS_MEANINGS.get(status, _phrase(status)),
        "content": {PROBLEM: {"schema": schema_of[Problem]}},
    }
    if sent := STATUS_HEADERS.get(status):
        shown["headers"] = {name: {"schema": {"type": "string"}, "example": example} for name, example in sent.items()}
    return shown


def _content(record: Any, media_type: str, schema_of: Mapping[Any, Json]) -> Json:
    if record is not None:
        return dict(schema_of[record])
    # A manifest is the same in both.
    return {"type": "object"} if media_type.endswith(("json", "yaml")) else {"type": "string"}


def _phrase(status: int) -> str:
    return HTTPStatus(status).phrase


def _complete(components: Mapping[str, Json]) -> None:
    """Add what the types do not say: the policies and placers that there are, and the policies' parameters."""
    for name in _WITH_PARAMETERS:
        if name in components:
            components[name]["properties"]["parameters"].update(_parameters_of_policies())
    for (name, field_name), known in _CHOICES.items():
        if name in components:
            components[name]["properties"][field_name]["enum"] = list(known)


def _parameters_of_policies() -> Json:
    properties = {
        policy: {
            "type": "object",
            "description": POLICIES[policy].title,
            "properties": dict(parameters),
            "additionalProperties": False,
        }
        for policy, parameters in parameter_schemas().items()
    }
    return {"properties": properties, "additionalProperties": False}
