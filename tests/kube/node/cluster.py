"""Starts and ends the cluster of ../shared/kube/node: two kubelets with all that is theirs, in namespaces of their own.

Rule: names, ports and folders are free ones, and `down` takes everything away, however the tests ended.
"""

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.kube.assets import ROOT, SHARED
from tests.needs import TORCH_VENV, missing
from tests.ports import free_port
from tools.bootstrap import absent_of_nodes

NODES = ("node1", "node2")
GPUS = 2
"""Of each node; its device plugin invents them."""
_VK = SHARED / "node" / "vk.py"
_BINARIES = ROOT / "out" / "kube" / "node"
_TIMEOUT_S = 300.0
_MOUNTED = ("/usr", "/etc/alternatives", "/etc/openmpi", sys.base_prefix, str(TORCH_VENV))
"""What every container sees of this machine, read-only: among them a user's PyTorch, and Debian's older one."""


def needed() -> None:
    """Skip (fail, in CI) the test that asks, unless this machine can be a cluster."""
    if not _VK.exists():
        missing(f"no {_VK}: it starts the kubelets")
    if os.geteuid() != 0:
        missing("nodes need root: they are network, mount and PID namespaces with cgroups of their own")
    if not (TORCH_VENV / "bin" / "torchrun").exists():
        missing("needs PyTorch: python3 tools/bootstrap.py --torch")
    if absent := absent_of_nodes():
        missing(f"apt-get install {' '.join(absent)}")
    probe = ["unshare", "--net", "--mount", "--pid", "--uts", "--fork", "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
    done = subprocess.run(probe, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    if done.returncode:
        missing(f"no namespaces: {done.stderr.strip()}")
    if importlib.util.find_spec("pip") is None and not shutil.which("pip"):
        missing("no pip, by which voda's image is built")


@dataclass(frozen=True)
class NodeCluster:
    """The cluster, while it runs."""

    folder: Path
    name: str = field(default_factory=lambda: f"v{os.getpid()}")
    port: int = field(default_factory=free_port)

    @property
    def kubeconfig(self) -> Path:
        """That of an administrator, by loopback."""
        return self.folder / "kubeconfig"

    @property
    def kubectl_program(self) -> Path:
        """Of the cluster's own version."""
        return _BINARIES / "kubectl"

    def start(self) -> None:
        """Start it from nothing, and wait until both nodes are ready and have their GPUs."""
        self._vk("up")

    def end(self) -> None:
        """End all processes, and remove namespaces, mounts, cgroups and folders."""
        self._vk("down", "--purge")
        shutil.rmtree(self.folder)

    def lose(self, node: str) -> None:
        """Pull the plug of a node: all that runs on it is gone at once."""
        self._vk("lose", node)

    def restore(self, node: str) -> None:
        """Let a lost node boot, with the disk that it had."""
        self._vk("back", node)

    def stop(self, node: str, program: str) -> None:
        """Stop one program of a node: kubelet or gpu-plugin; its pods run on."""
        self._vk("stop", node, program)

    def start_again(self, node: str, program: str) -> None:
        """Start a stopped program again."""
        self._vk("start", node, program)

    def load(self, archive: Path) -> None:
        """Give an image to all nodes."""
        for node in NODES:
            program = f"{_BINARIES}/ctr"
            self._vk("enter", node, program, "-n", "k8s.io", "images", "import", "--local", str(archive))

    def kubectl(self, *arguments: str, stdin: str = "") -> str:
        """Run kubectl as an administrator, and return what it prints."""
        command = [str(self.kubectl_program), f"--kubeconfig={self.kubeconfig}", *arguments]
        return output_of(command, stdin=stdin)

    def _vk(self, *arguments: str) -> None:
        settings = {
            "VK_STATE": str(self.folder),
            "VK_BIN": str(_BINARIES),
            "VK_NAME": self.name,
            "VK_PORT": str(self.port),
            "VK_GPUS": str(GPUS),
            "VK_OPERATORS": "",
            "VK_FORWARD": "",
            "VK_MOUNTS": " ".join(_MOUNTED),
        }
        output_of([sys.executable, str(_VK), *arguments], variables=settings)


@contextmanager
def node_cluster() -> Iterator[NodeCluster]:
    """Run a cluster for as long as it is needed."""
    needed()
    _BINARIES.mkdir(parents=True, exist_ok=True)
    cluster = NodeCluster(Path(tempfile.mkdtemp(prefix="voda-nodes-")))
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.end()


def output_of(command: list[str], *, stdin: str = "", variables: Mapping[str, str] | None = None) -> str:
    """Run a command to its end, and return what it prints; fails the test where the command fails."""
    environment = {**os.environ, **(variables or {})}  # noqa: TID251 - tests have no voda.config
    done = subprocess.run(
        command, input=stdin, env=environment, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
    )
    assert done.returncode == 0, f"{' '.join(command)}: {done.stdout}{done.stderr}"
    return done.stdout
