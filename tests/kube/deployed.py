"""What the chart makes of a cluster, and voda's own rights there: rendered by Helm, applied by kubectl.

Rule: nothing is changed on the way. The sets of values are in `tests/kube/chart/`, each with what Helm renders of it.
"""

import json
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from tests.kube.assets import ROOT, kubectl, peer
from tests.kube.control_plane import ControlPlane

Manifest = dict[str, Any]
CHART = ROOT / "deploy" / "helm" / "voda"
SETS = ROOT / "tests" / "kube" / "chart"
NAMES = tuple(sorted(path.name.removesuffix(".values.yaml") for path in SETS.glob("*.values.yaml")))
NAMESPACE = "voda-system"
RIGHTS = frozenset({"ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"})
RESTRICTED = {
    "apiVersion": "v1",
    "kind": "Namespace",
    "metadata": {
        "name": NAMESPACE,
        "labels": {f"pod-security.kubernetes.io/{what}": "restricted" for what in ("enforce", "warn", "audit")},
    },
}
_VERSION = "1.37.2"
"""Of the cluster for which Helm renders where it has none."""
_TOKEN_S = 3_600
_TIMEOUT_S = 60.0


def values(name: str) -> Path:
    """Return the file of a set of values."""
    return SETS / f"{name}.values.yaml"


def helm(
    *arguments: str, plane: ControlPlane | None = None, namespace: str = NAMESPACE
) -> subprocess.CompletedProcess[str]:
    """Run Helm in a namespace, on a cluster where one is given; the caller looks at its exit status."""
    config = ("--kubeconfig", str(plane.kubeconfig())) if plane else ()
    command = [str(peer("helm")), *arguments, "--namespace", namespace, *config]
    return subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)


@cache
def template(name: str, *arguments: str) -> str:
    """Return what Helm renders of a set of values; `arguments` such as --set override it."""
    done = helm("template", "voda", str(CHART), "-f", str(values(name)), "--kube-version", _VERSION, *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def rendered(name: str, *arguments: str) -> Sequence[Manifest]:
    """Return the manifests that Helm renders of a set of values, without those of `helm test`."""
    made = (manifest for manifest in yaml.safe_load_all(template(name, "--skip-tests", *arguments)) if manifest)
    return list(made)


def apply(plane: ControlPlane, manifests: Sequence[Manifest], *flags: str) -> Sequence[str]:
    """Apply manifests as an admin would, and return what kubectl says of each, such as `service/voda created`.

    The server checks them, unknown fields included.
    """
    text = yaml.safe_dump_all(manifests)
    return run_kubectl("apply", "--validate=strict", *flags, "-f", "-", plane=plane, stdin=text).splitlines()


def versions(plane: ControlPlane, manifests: Sequence[Manifest]) -> Sequence[str]:
    """Return what the server says is the version of each object; kubectl says "configured" of some that are as ever."""
    found = run_kubectl("get", "-f", "-", "-o", "json", plane=plane, stdin=yaml.safe_dump_all(manifests))
    return [item["metadata"]["resourceVersion"] for item in json.loads(found)["items"]]


def service_account_kubeconfig(plane: ControlPlane, name: str = "sqlite", *arguments: str) -> Path:
    """Give voda its rights and nothing else, and return a kubeconfig of its ServiceAccount, good for an hour.

    The current namespace of that kubeconfig is voda's.
    """
    rights = [manifest for manifest in rendered(name, *arguments) if manifest["kind"] in RIGHTS]
    apply(plane, [RESTRICTED, *rights])
    path = plane.kubeconfig(service_account_token(plane), "voda")
    config = yaml.safe_load(path.read_text())
    config["contexts"][0]["context"]["namespace"] = NAMESPACE
    path.write_text(yaml.safe_dump(config))
    return path


def service_account_token(plane: ControlPlane, name: str = "voda") -> str:
    """Return a token of a ServiceAccount in voda's namespace, as a pod of it would get one."""
    return run_kubectl("create", "token", name, "-n", NAMESPACE, f"--duration={_TOKEN_S}s", plane=plane).strip()


def pods(plane: ControlPlane) -> Sequence[Manifest]:
    """Return the pods in voda's namespace."""
    return list(json.loads(run_kubectl("get", "pods", "-n", NAMESPACE, "-o", "json", plane=plane))["items"])


def run_kubectl(*arguments: str, plane: ControlPlane | None = None, stdin: str = "") -> str:
    """Run kubectl, and return what it prints; fails the test where kubectl fails."""
    program = kubectl()
    config = ("--kubeconfig", str(plane.kubeconfig())) if plane else ()
    done = subprocess.run(
        [program, *config, *arguments], input=stdin, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
    )
    assert done.returncode == 0, f"kubectl {' '.join(arguments)}: {done.stderr}"
    return done.stdout
