"""Where the binaries of the control plane are: KUBEBUILDER_ASSETS, else unpacked once from the shared folder.

Rule: any version can be tried by pointing KUBEBUILDER_ASSETS at a folder with etcd, kube-apiserver,
kube-controller-manager and kube-scheduler; without any the tests are skipped, but never where CI is set.
"""

import fcntl
import os
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path

from tests.needs import missing

ROOT = Path(__file__).resolve().parents[2]
SHARED = ROOT.parent / "shared" / "kube"
BINARIES = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
_UNPACKED = ROOT / "out" / "kube"


def assets() -> Path:
    """Return the folder of binaries, or skip (fail, in CI) the test that asks for them."""
    folder = _found()
    absent = [name for name in BINARIES if not (folder / name).exists()]
    if not absent:
        return folder
    missing(f"no {', '.join(absent)} in {folder}: set KUBEBUILDER_ASSETS, or run tools/bootstrap.py --kubernetes")


def crds() -> Path:
    """Return the folder of the operators' CustomResourceDefinitions."""
    return SHARED / "crds"


def kubectl(*, least_minor: int = 0) -> str:
    """Return the path of kubectl, or skip (fail, in CI) the test that asks for it.

    Args:
        least_minor: 22 asks for 1.22 or newer.
    """
    found = shutil.which("kubectl") or shutil.which("kubectl", path=str(_found()))
    if found is None or _minor(found) < least_minor:
        missing(f"no kubectl of 1.{least_minor} or newer, found {found or 'none'}: install one from dl.k8s.io")
    return found


@cache
def _minor(kubectl: str) -> int:
    said = subprocess.run([kubectl, "version", "--client", "-o", "json"], capture_output=True, text=True, timeout=60)
    named = re.search(r'"gitVersion": "v1\.(\d+)', said.stdout)
    return int(named[1]) if named else 0


def _found() -> Path:
    named = os.environ.get("KUBEBUILDER_ASSETS", "")  # noqa: TID251 - tests have no voda.config
    if named:
        return Path(named)
    if not (SHARED / "unpack").exists():
        return _UNPACKED
    _UNPACKED.mkdir(parents=True, exist_ok=True)
    # Two runs at once must not unpack into each other's files.
    with (_UNPACKED / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        subprocess.run(["sh", str(SHARED / "unpack"), str(_UNPACKED)], check=True, timeout=300, capture_output=True)
    return _UNPACKED
