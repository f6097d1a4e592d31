"""What the Pod Security Standards of Kubernetes 1.37 forbid of a pod template, by level. Pure.

Rules: what is not named here as allowed is forbidden, whatever its type; the exceptions for pods of Windows, and for
pods with a user namespace, are not made, so that a template that is right here is right for every API server.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final, Literal

from voda.kinds.base import FieldWarning

Level = Literal["privileged", "baseline", "restricted"]
"""privileged: all is allowed; the others as in the Standards."""
_ALL: Final = ("containers", "initContainers", "ephemeralContainers")
_ABSENT: Final = (None, False)
_PROFILES: Final = (None, "RuntimeDefault", "Localhost")
_EMPTY: Final = (None, "")
_CAPABILITIES: Final = (
    *("AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD", "NET_BIND_SERVICE", "SETFCAP"),
    *("SETGID", "SETPCAP", "SETUID", "SYS_CHROOT"),
)
_SYSCTLS: Final = (
    "kernel.shm_rmid_forced",
    *(f"net.ipv4.ip_{name}" for name in ("local_port_range", "unprivileged_port_start", "local_reserved_ports")),
    *(f"net.ipv4.tcp_{name}" for name in ("syncookies", "keepalive_time", "fin_timeout", "keepalive_intvl")),
    *(f"net.ipv4.tcp_{name}" for name in ("keepalive_probes", "rmem", "wmem")),
    "net.ipv4.ping_group_range",
)
_VOLUMES: Final = frozenset(
    {
        *("configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "image"),
        *("persistentVolumeClaim", "projected", "secret"),
    }
)
_APPARMOR: Final = re.compile(r"container\.apparmor\.security\.beta\.kubernetes\.io/")
_APPARMOR_PROFILE: Final = re.compile(r"(runtime/default|localhost/.*)?")
_OF_BOTH: Final[Mapping[str, Collection[Any]]] = {
    "securityContext.windowsOptions.hostProcess": _ABSENT,
    "securityContext.seLinuxOptions.type": (
        *_EMPTY,
        *("container_t", "container_init_t", "container_kvm_t", "container_engine_t"),
    ),
    "securityContext.seLinuxOptions.user": _EMPTY,
    "securityContext.seLinuxOptions.role": _EMPTY,
    "securityContext.seccompProfile.type": _PROFILES,
    "securityContext.appArmorProfile.type": _PROFILES,
}
_OF_PODS: Final[Mapping[str, Collection[Any]]] = {
    **dict.fromkeys(("hostNetwork", "hostPID", "hostIPC"), _ABSENT),
    "volumes[].hostPath": (None,),
    "securityContext.sysctls[].name": _SYSCTLS,
    **_OF_BOTH,
}
_OF_CONTAINERS: Final[Mapping[str, Collection[Any]]] = {
    "securityContext.privileged": _ABSENT,
    "securityContext.procMount": (*_EMPTY, "Default"),
    "securityContext.capabilities.add[]": _CAPABILITIES,
    "ports[].hostPort": (None, 0),
    **{
        f"{where}.{handler}.host": _EMPTY
        for where in ("livenessProbe", "readinessProbe", "startupProbe", "lifecycle.postStart", "lifecycle.preStop")
        for handler in ("httpGet", "tcpSocket")
    },
    **_OF_BOTH,
}
"""Path -> the values that baseline allows there; None: absent."""


def violations(template: Mapping[str, Any], path: str, level: Level) -> Iterator[FieldWarning]:
    """Yield each field of a pod template that a level forbids, or that it needs and the template lacks.

    `path` is where the template is in its manifest.
    """
    if level == "privileged":
        return
    pod = _mapping(template.get("spec"))
    containers = [each for field in _ALL for each in _found(pod, f"{field}[]", f"{path}.spec")]
    yield from _apparmor_notes(_mapping(template.get("metadata")), f"{path}.metadata")
    yield from _outside(pod, f"{path}.spec", _OF_PODS)
    for where, container in containers:
        yield from _outside(container, where, _OF_CONTAINERS)
    if level == "restricted":
        yield from _restricted(pod, f"{path}.spec", containers)


def _restricted(pod: Mapping[str, Any], path: str, containers: Sequence[tuple[str, Any]]) -> Iterator[FieldWarning]:
    for where, volume in _found(pod, "volumes[]", path):
        for kind in sorted({*_mapping(volume)} - {"name"} - _VOLUMES):
            yield FieldWarning(field=f"{where}.{kind}", message="forbidden: no such volume")
    context = _mapping(pod.get("securityContext"))
    yield from _not_root(context, f"{path}.securityContext", is_needed=False)
    is_non_root, profile = context.get("runAsNonRoot") is True, _mapping(context.get("seccompProfile")).get("type")
    for where, container in containers:
        own, at = _mapping(_mapping(container).get("securityContext")), f"{where}.securityContext"
        yield from _not_root(own, at, is_needed=not is_non_root)
        if own.get("allowPrivilegeEscalation") is not False:
            yield _expected(f"{at}.allowPrivilegeEscalation", "false", own.get("allowPrivilegeEscalation"))
        if not profile and not _mapping(own.get("seccompProfile")).get("type"):
            yield _expected(f"{at}.seccompProfile.type", "RuntimeDefault or Localhost, here or of the pod", None)
        capabilities = _mapping(own.get("capabilities"))
        if "ALL" not in _items(capabilities.get("drop")):
            yield _expected(f"{at}.capabilities.drop", "[ALL]", capabilities.get("drop"))
        yield from _outside(capabilities, f"{at}.capabilities", {"add[]": ("NET_BIND_SERVICE",)})


def _not_root(context: Mapping[str, Any], path: str, *, is_needed: bool) -> Iterator[FieldWarning]:
    """Yield what lets a pod or a container run as root; `is_needed`: runAsNonRoot has to be said here."""
    said = context.get("runAsNonRoot")
    if said is not True and (is_needed or said is not None):
        yield _expected(f"{path}.runAsNonRoot", "true", said)
    if (user := context.get("runAsUser")) is not None and (not isinstance(user, int) or user == 0):
        yield _expected(f"{path}.runAsUser", "another than root's", user)


def _apparmor_notes(metadata: Mapping[str, Any], path: str) -> Iterator[FieldWarning]:
    for key, value in _mapping(metadata.get("annotations")).items():
        if _APPARMOR.match(str(key)) and not _APPARMOR_PROFILE.fullmatch(str(value)):
            yield _expected(f"{path}.annotations[{key}]", "runtime/default or localhost/...", value)


def _outside(value: object, path: str, allowed: Mapping[str, Collection[Any]]) -> Iterator[FieldWarning]:
    for field, values in allowed.items():
        for where, found in _found(value, field, path):
            if found not in values:
                yield _expected(where, " or ".join(map(_shown, values)), found)


def _found(value: object, field: str, path: str) -> Iterator[tuple[str, Any]]:
    """Yield (path, value) of a field; of `list[].field` those of all items; a value that is absent is None."""
    if not field:
        yield path, value
        return
    name, _, rest = field.partition(".")
    within = _mapping(value).get(name.removesuffix("[]"))
    here = f"{path}.{name.removesuffix('[]')}"
    if not name.endswith("[]"):
        yield from _found(within, rest, here)
        return
    for index, item in enumerate(_items(within)):
        yield from _found(item, rest, f"{here}[{index}]")


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _items(value: object) -> Sequence[Any]:
    """Return the items of a list; what is none is one, which has no allowed value."""
    if value is None:
        return ()
    return value if isinstance(value, list | tuple) else (value,)


def _expected(field: str, expected: str, got: object) -> FieldWarning:
    return FieldWarning(field=field, message=f"expected {expected}, got {_shown(got)}")


def _shown(value: object) -> str:
    if value is None:
        return "nothing"
    return str(value).lower()[:80] if isinstance(value, bool) else repr(value)[:80]
