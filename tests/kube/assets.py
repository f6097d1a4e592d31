"""Where the binaries of Kubernetes and of operators are: KUBEBUILDER_ASSETS, else unpacked once from ../shared/kube.

Rule: any version can be tried by pointing KUBEBUILDER_ASSETS at a folder with etcd, kube-apiserver,
kube-controller-manager, kube-scheduler and kubectl; ENVTEST_K8S_VERSION chooses among those of ../shared/kube. Without
any the tests are skipped, but never where CI is set.
"""

import fcntl
import os
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from tests.needs import missing

ROOT = Path(__file__).resolve().parents[2]
SHARED = ROOT.parent / "shared" / "kube"
BINARIES = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl")
PEERS = ("helm", "jobset", "kwok", "mpi-operator", "trainer", "training-operator")
DEFAULT_VERSION = "1.37.2"
IS_OLD = os.environ.get("ENVTEST_K8S_VERSION") == "1.35.4"  # noqa: TID251 - tests have no voda.config
"""Whether the tests run on the oldest Kubernetes that is supported upstream, where a Job that ran keeps its template
for good, though it is suspended.
"""
_UNPACKED = ROOT / "out" / "kube"


def assets() -> Path:
    """Return the folder of the control plane's binaries, or skip (fail, in CI) the test that asks for them."""
    named = _variable("KUBEBUILDER_ASSETS")
    folder = Path(named) if named else _unpacked(_variable("ENVTEST_K8S_VERSION") or DEFAULT_VERSION)
    absent = [name for name in BINARIES if not (folder / name).exists()]
    if not absent:
        return folder
    missing(f"no {', '.join(absent)} in {folder}: set KUBEBUILDER_ASSETS, or run tools/bootstrap.py --kubernetes")


def peer(name: str) -> Path:
    """Return the binary of a peer (see PEERS), or skip (fail, in CI) the test that asks for it."""
    named = Path(_variable("KUBEBUILDER_ASSETS") or "/nowhere") / name
    found = named if named.exists() else _unpacked("peers", *PEERS) / name
    if found.exists():
        return found
    missing(f"no {name} in {found.parent}: put it beside kube-apiserver in KUBEBUILDER_ASSETS")


def manifests() -> Path:
    """Return the folder of what the operators publish: definitions, webhooks, stages; each in a folder of its own."""
    named = Path(_variable("KUBEBUILDER_ASSETS") or "/nowhere") / "manifests"
    found = named if named.exists() else SHARED / "manifests"
    if found.exists():
        return found
    missing(f"no {named}: put the manifests that the operators publish there")


def kubectl() -> str:
    """Return the path of kubectl, of the control plane's own version."""
    return str(assets() / "kubectl")


@cache
def _unpacked(what: str, *names: str) -> Path:
    """Return the folder into which a version, or peers, are unpacked; it is empty where there is nothing to unpack."""
    folder = _UNPACKED / what
    folder.mkdir(parents=True, exist_ok=True)
    if (SHARED / "unpack").exists():
        # Two runs at once must not unpack into each other's files.
        with (_UNPACKED / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            command: Sequence[str] = ("sh", str(SHARED / "unpack"), str(folder), what, *names)
            done = subprocess.run(command, check=False, timeout=300, capture_output=True, text=True)
            if done.returncode:
                missing(f"Kubernetes {what}: {done.stderr.strip()}")
    return folder


def _variable(name: str) -> str:
    return os.environ.get(name, "")  # noqa: TID251 - tests have no voda.config
