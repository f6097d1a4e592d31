"""Pod templates that somebody might send who wants more than is theirs: drawn from a seed, on top of a harmless one."""

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from random import Random
from typing import Any

from tests.kube.client import Object

Change = Callable[[Object, Object, Random], None]
"""(template, one of its containers, chance) -> nothing; it changes them."""


def a_harmless_template(name: str = "worker") -> Object:
    """Return a template that the level `restricted` lets pass."""
    context = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    container = {"name": name, "image": "train", "command": ["train"], "securityContext": context}
    pod = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    return {"spec": {"containers": [container], "securityContext": pod, "restartPolicy": "Never"}}


def drawn_template(random: Random, name: str = "worker", changes: Sequence[Change] = ()) -> Object:
    """Return a template with none to three changes."""
    template = a_harmless_template(name)
    spec = template["spec"]
    if random.random() < 0.2:
        spec["initContainers"] = [{**deepcopy(spec["containers"][0]), "name": "first"}]
    if random.random() < 0.2:
        spec["containers"].append({**deepcopy(spec["containers"][0]), "name": "beside"})
    for _ in range(random.choice((0, 0, 1, 1, 1, 2, 3))):
        container = random.choice([*spec["containers"], *spec.get("initContainers", ())])
        random.choice(changes or ALL)(template, container, random)
    return template


def _of_pod(path: str, *values: Any) -> Change:
    return lambda template, _, random: _set(template, path, random.choice(values))


def _of_container(path: str, *values: Any) -> Change:
    return lambda _, container, random: _set(container, path, random.choice(values))


def _volume(kind: str, source: Mapping[str, Any]) -> Change:
    def add(template: Object, _: Object, random: Random) -> None:
        volumes = template["spec"].setdefault("volumes", [])
        volumes.append({"name": f"v{len(volumes)}", kind: deepcopy(source)})

    return add


def _set(value: Any, path: str, item: Any) -> None:
    *parts, last = path.split("/")
    for part in parts:
        value = value.setdefault(part, {})
    if item is None:
        value.pop(last, None)
    else:
        value[last] = deepcopy(item)


def _port(number: int) -> Object:
    return {"containerPort": 8080, "hostPort": number} if number else {"containerPort": 8080}


def _probe(handler: str, host: str) -> Object:
    return {handler: {"port": 8080, **({"host": host} if host else {})}}


_UNCONFINED = {"type": "Unconfined"}
_DEFAULT = {"type": "RuntimeDefault"}
_LOCALHOST = {"type": "Localhost", "localhostProfile": "mine"}
_CONTEXT = "securityContext"
_CLAIM = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
_HOSTS = ("", "127.0.0.1", "10.0.0.1")
STANDARD: Sequence[Change] = (
    *(_of_pod(f"spec/{field}", True, True, False) for field in ("hostNetwork", "hostPID", "hostIPC")),
    _of_pod("spec/shareProcessNamespace", True),
    _of_pod(f"spec/{_CONTEXT}/runAsNonRoot", None, False),
    _of_pod(f"spec/{_CONTEXT}/runAsUser", 0, 1000),
    _of_pod(f"spec/{_CONTEXT}/seccompProfile", None, _UNCONFINED, _LOCALHOST),
    _of_pod(f"spec/{_CONTEXT}/appArmorProfile", _DEFAULT, _UNCONFINED, _LOCALHOST),
    _of_pod(
        f"spec/{_CONTEXT}/seLinuxOptions", {"type": "spc_t"}, {"type": "container_t"}, {"user": "u"}, {"level": "s0"}
    ),
    _of_pod(f"spec/{_CONTEXT}/sysctls", [{"name": "kernel.msgmax", "value": "1"}]),
    _of_pod(f"spec/{_CONTEXT}/sysctls", [{"name": "net.ipv4.tcp_rmem", "value": "1"}]),
    _of_pod(f"spec/{_CONTEXT}/windowsOptions", {"hostProcess": True}, {"hostProcess": False}),
    _of_pod("spec/hostUsers", False),
    _of_pod("metadata/annotations", {"container.apparmor.security.beta.kubernetes.io/worker": "unconfined"}),
    _of_container(f"{_CONTEXT}/privileged", True, False),
    _of_container(f"{_CONTEXT}/allowPrivilegeEscalation", True, None),
    _of_container(f"{_CONTEXT}/runAsNonRoot", True, False),
    _of_container(f"{_CONTEXT}/runAsUser", 0, 1000),
    _of_container(f"{_CONTEXT}/procMount", "Default", "Unmasked"),
    _of_container(f"{_CONTEXT}/capabilities/drop", None, ["CHOWN"], ["all"]),
    _of_container(f"{_CONTEXT}/capabilities/add", ["NET_BIND_SERVICE"], ["CHOWN"], ["SYS_ADMIN"], ["ALL"]),
    _of_container(f"{_CONTEXT}/seccompProfile", _DEFAULT, _UNCONFINED, _LOCALHOST),
    _of_container(f"{_CONTEXT}/appArmorProfile", _DEFAULT, _UNCONFINED, _LOCALHOST),
    _of_container(f"{_CONTEXT}/seLinuxOptions", {"type": "container_engine_t"}, {"type": "spc_t"}, {"role": "r"}),
    _of_container(f"{_CONTEXT}/windowsOptions", {"hostProcess": True}),
    _of_container(_CONTEXT, None),
    _of_container("ports", [_port(80)], [_port(0)]),
    *(
        _of_container(f"lifecycle/{when}", *(_probe("httpGet", host) for host in _HOSTS))
        for when in ("postStart", "preStop")
    ),
    *(
        _of_container(f"{probe}Probe", *(_probe(handler, host) for host in _HOSTS))
        for probe in ("liveness", "readiness", "startup")
        for handler in ("httpGet", "tcpSocket")
    ),
    _volume("hostPath", {"path": "/"}),
    _volume("nfs", {"server": "nfs", "path": "/"}),
    _volume("emptyDir", {}),
    _volume("configMap", {"name": "config"}),
    _volume("persistentVolumeClaim", {"claimName": "data"}),
    _volume("downwardAPI", {"items": []}),
    _volume("projected", {"sources": [{"serviceAccountToken": {"path": "token", "audience": "vault"}}]}),
    _volume("csi", {"driver": "csi.example.com"}),
    _volume("image", {"reference": "data:1"}),
    _volume("gitRepo", {"repository": "https://example.com/a.git"}),
    _volume("flexVolume", {"driver": "example.com/a"}),
    _volume("ephemeral", {"volumeClaimTemplate": {"spec": _CLAIM}}),
    _volume("projected", {"sources": [{"clusterTrustBundle": {"name": "roots", "path": "roots"}}]}),
    _of_pod("spec/automountServiceAccountToken", True, False),
    _of_pod("spec/priorityClassName", "system-node-critical"),
    _of_pod("spec/nodeName", "n1"),
    _of_pod("spec/hostAliases", [{"ip": "127.0.0.1", "hostnames": ["voda"]}]),
    _of_pod(f"spec/{_CONTEXT}/supplementalGroups", [0]),
    _of_pod(f"spec/{_CONTEXT}/fsGroup", 0),
    _of_pod(f"spec/{_CONTEXT}/sysctls", [{"name": "kernel.shm_rmid_forced", "value": "1"}]),
    _of_container("restartPolicy", "Always"),
    _of_container("volumeMounts", [{"name": "v0", "mountPath": "/v0", "mountPropagation": "Bidirectional"}]),
    _of_container("volumeDevices", [{"name": "v0", "devicePath": "/dev/v0"}]),
    _of_container("stdin", True),
    _volume("iscsi", {"targetPortal": "1.2.3.4", "iqn": "iqn.2001-04.com.example:a", "lun": 0}),
)
"""What the Pod Security Standards speak of."""
SECRETS = ("theirs", "hidden")
OF_OTHERS: Sequence[Change] = (
    _of_pod("spec/serviceAccountName", "default", "builder", "voda"),
    _of_pod("spec/serviceAccount", "voda"),
    *(_of_pod("spec/imagePullSecrets", [{"name": name}]) for name in SECRETS),
    *(_volume("secret", {"secretName": name}) for name in SECRETS),
    *(_volume("projected", {"sources": [{"secret": {"name": name}}]}) for name in SECRETS),
    *(_volume("csi", {"driver": "csi.example.com", "nodePublishSecretRef": {"name": name}}) for name in SECRETS),
    *(
        _volume(kind, {**source, field: name if field == "secretName" else {"name": name}})
        for name in SECRETS
        for kind, field, source in (
            ("azureFile", "secretName", {"shareName": "a"}),
            ("cephfs", "secretRef", {"monitors": ["1.2.3.4:6789"]}),
            ("flexVolume", "secretRef", {"driver": "example.com/a"}),
            ("iscsi", "secretRef", {"targetPortal": "1.2.3.4", "iqn": "iqn.2001-04.com.example:a", "lun": 0}),
            ("rbd", "secretRef", {"monitors": ["1.2.3.4:6789"], "image": "a"}),
        )
    ),
    *(_of_container("envFrom", [{"prefix": "A_", "secretRef": {"name": name}}]) for name in SECRETS),
    *(
        _of_container("env", [{"name": "A", "valueFrom": {"secretKeyRef": {"name": name, "key": "a"}}}])
        for name in SECRETS
    ),
)
"""What is somebody's in the namespace: service accounts and Secrets."""
ALL: Sequence[Change] = (*STANDARD, *OF_OTHERS)
