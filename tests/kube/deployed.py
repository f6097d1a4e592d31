"""What deploy/ makes of a cluster, and voda's own rights there: the manifests rendered and applied by kubectl.

Rule: nothing is changed on the way.
"""

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from tests.kube.assets import ROOT, kubectl
from tests.kube.control_plane import ControlPlane

Manifest = dict[str, Any]
KUSTOMIZE = ROOT / "deploy" / "kustomize"
NAMESPACE = "voda-system"
RIGHTS = frozenset({"Namespace", "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"})
_TOKEN_S = 3_600
_TIMEOUT_S = 60.0


def rendered(folder: str) -> Sequence[Manifest]:
    """Return what kustomize makes of a folder of deploy/kustomize."""
    said = _kubectl("kustomize", str(KUSTOMIZE / folder))
    return [manifest for manifest in yaml.safe_load_all(said) if manifest]


def apply(plane: ControlPlane, manifests: Sequence[Manifest]) -> Sequence[str]:
    """Apply manifests as an admin would, and return what kubectl says of each, such as `service/voda created`.

    The server checks them, unknown fields included.
    """
    text = yaml.safe_dump_all(manifests)
    return _kubectl("apply", "--validate=strict", "-f", "-", plane=plane, stdin=text).splitlines()


def versions(plane: ControlPlane, manifests: Sequence[Manifest]) -> Sequence[str]:
    """Return what the server says is the version of each object; kubectl says "configured" of some that are as ever."""
    found = _kubectl("get", "-f", "-", "-o", "json", plane=plane, stdin=yaml.safe_dump_all(manifests))
    return [item["metadata"]["resourceVersion"] for item in json.loads(found)["items"]]


def service_account_kubeconfig(plane: ControlPlane) -> Path:
    """Give voda its rights and nothing else, and return a kubeconfig of its ServiceAccount, good for an hour.

    The current namespace of that kubeconfig is voda's.
    """
    apply(plane, [manifest for manifest in rendered("base") if manifest["kind"] in RIGHTS])
    path = plane.kubeconfig(service_account_token(plane), "voda")
    config = yaml.safe_load(path.read_text())
    config["contexts"][0]["context"]["namespace"] = NAMESPACE
    path.write_text(yaml.safe_dump(config))
    return path


def service_account_token(plane: ControlPlane, name: str = "voda") -> str:
    """Return a token of a ServiceAccount in voda's namespace, as a pod of it would get one."""
    return _kubectl("create", "token", name, "-n", NAMESPACE, f"--duration={_TOKEN_S}s", plane=plane).strip()


def pods(plane: ControlPlane) -> Sequence[Manifest]:
    """Return the pods in voda's namespace."""
    return list(json.loads(_kubectl("get", "pods", "-n", NAMESPACE, "-o", "json", plane=plane))["items"])


def _kubectl(*arguments: str, plane: ControlPlane | None = None, stdin: str = "") -> str:
    program = kubectl()
    config = ("--kubeconfig", str(plane.kubeconfig())) if plane else ()
    done = subprocess.run(
        [program, *config, *arguments], input=stdin, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
    )
    assert done.returncode == 0, f"kubectl {' '.join(arguments)}: {done.stderr}"
    return done.stdout
