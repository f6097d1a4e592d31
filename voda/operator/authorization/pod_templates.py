"""The pod templates of an object, and the service accounts and Secrets that pods of them would use. Pure.

Rule: a template counts wherever it is in the object: a kind may have several, and newer versions may have more.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

_OF_POD: Final = ("volumes", "containers", "initContainers", "ephemeralContainers", "imagePullSecrets")
_OWN_ACCOUNT: Final = ("", "default")
"""What pods have that name no service account."""


def pod_templates(value: object, path: str = "") -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield (path, template) for each mapping within `value` whose `spec` has containers."""
    if isinstance(value, Mapping):
        spec = value.get("spec")
        if isinstance(spec, Mapping) and "containers" in spec:
            yield path, value
        for name, item in value.items():
            yield from pod_templates(item, f"{path}.{name}" if path else str(name))
    elif isinstance(value, Sequence) and not isinstance(value, str):
        for index, item in enumerate(value):
            yield from pod_templates(item, f"{path}[{index}]")


def service_accounts(template: Mapping[str, Any]) -> set[str]:
    """Return the service accounts as which pods of a template would run, but for the namespace's own, `default`."""
    named = (str(template["spec"].get(field) or "") for field in ("serviceAccountName", "serviceAccount"))
    return {name for name in named if name not in _OWN_ACCOUNT}


def secrets(template: Mapping[str, Any]) -> set[str]:
    """Return the Secrets that pods of a template would read: as volumes, variables, of a driver or to pull images."""
    pod = template["spec"]
    return {name for field in _OF_POD for name in _secrets({field: pod.get(field)})}


def _secrets(value: object) -> Iterator[str]:
    """Yield what is named behind each field whose name has the word: secretRef.name, secret.secretName, secretName."""
    if isinstance(value, Mapping):
        for field, item in value.items():
            yield from _names(item) if "secret" in str(field).lower() else _secrets(item)
    elif isinstance(value, Sequence) and not isinstance(value, str):
        for item in value:
            yield from _secrets(item)


def _names(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        yield from (str(value[field]) for field in ("name", "secretName") if value.get(field))
    elif isinstance(value, Sequence):
        for item in value:
            yield from _names(item)
