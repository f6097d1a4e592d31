"""voda on real nodes, as docs/install-kubernetes.md says: image, chart, port-forward, command line.

Rule: what an administrator or a user would type is what runs here, by kubectl, helm and voda.
"""

import base64
import hashlib
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import yaml

from tests.kube.assets import ROOT, peer
from tests.kube.deployed import CHART, NAMESPACE, RESTRICTED
from tests.kube.node.cluster import NODES, NodeCluster, output_of
from tests.ports import free_port
from tests.served_process import PROGRAM
from tests.waiting import wait_until
from voda import config

IMAGE = "registry.example.com/voda:0.1.0"
TRAIN_IMAGE = "registry.example.com/train:1"
_IMAGES = ROOT / "out" / "kube" / "node-images"
_SLOW_S = 300.0
"""Longer than torch takes to start in pods of the lowest priority, on a busy machine."""
_STEP = re.compile(r"(?P<at>\d+\.\d+) step (?P<step>\d+) of (?P<workers>\d+) workers")


def readme_commands() -> Sequence[Sequence[str]]:
    """Return the commands of the README's section about Kubernetes, each as its words: install, submit, describe."""
    section = (ROOT / "README.md").read_text("utf-8").partition("\n## On Kubernetes\n")[2]
    lines = section.split("```")[1].splitlines()
    return [words for line in lines if (words := shlex.split(line, comments=True))]


@dataclass(frozen=True)
class Step:
    """One step of a training, as its output has it."""

    at: float
    step: int
    workers: int


@dataclass
class Installation:
    """voda, installed by its chart."""

    cluster: NodeCluster
    home: Path
    """The folder of its volume."""
    access: Mapping[str, str] = field(default_factory=dict)

    def install(self) -> None:
        """Install the chart by the README's command, on a disk of this machine, and wait until it is ready."""
        self.home.mkdir(mode=0o700)
        self.cluster.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all([RESTRICTED, *_disk(self.home)]))
        self.type(*readme_commands()[0], *self.values())
        self.ready()
        token = self.cluster.kubectl("-n", NAMESPACE, "get", "secret", "voda-access", "-o", "json")
        self.access = {"VODA_TOKEN": base64.b64decode(json.loads(token)["data"]["admin.token"]).decode()}

    def upgrade(self, *settings: str) -> None:
        """Upgrade the chart with other settings, which rolls voda's pod, and wait until the new one is ready."""
        self.helm("upgrade", "voda", str(CHART), *self.values(), *(f"--set={each}" for each in settings))
        self.ready()

    def values(self) -> Sequence[str]:
        """Return the values of the installation: its disk and, as node2 will be lost, its node."""
        values = {
            "image": {"repository": IMAGE.rpartition(":")[0]},
            "log": {"volume": {"storageClass": "local"}},
            "nodeSelector": {"kubernetes.io/hostname": NODES[0]},
        }
        path = self.cluster.folder / "values.yaml"
        path.write_text(yaml.safe_dump(values))
        return ("-f", str(path))

    def ready(self) -> None:
        """Wait until the rollout is done."""
        self.cluster.kubectl("-n", NAMESPACE, "rollout", "status", "deployment", "voda", "--timeout=120s")

    def type(self, *words: str) -> str:
        """Run a command as somebody types it in a checkout, with the kubeconfig of an administrator."""
        programs = (peer("helm").parent, self.cluster.kubectl_program.parent, Path(sys.executable).parent)
        path = os.pathsep.join([*map(str, programs), config.environment()["PATH"]])
        variables = {"PATH": path, "KUBECONFIG": str(self.cluster.kubeconfig)}
        return output_of(["env", "--chdir", str(ROOT), *words], variables=variables)

    def helm(self, *arguments: str) -> str:
        """Run Helm in voda's namespace."""
        return output_of([str(peer("helm")), *arguments, "-n", NAMESPACE, f"--kubeconfig={self.cluster.kubeconfig}"])

    @contextmanager
    def forwarded(self) -> Iterator[None]:
        """Reach the API by `kubectl port-forward`, for as long as the pod lives that answers."""
        port = free_port()
        binary = str(self.cluster.kubectl_program)
        command = [binary, f"--kubeconfig={self.cluster.kubeconfig}", "-n", NAMESPACE, "port-forward"]
        forward = subprocess.Popen([*command, "service/voda", f"{port}:8470"], stdout=subprocess.PIPE, text=True)
        try:
            assert forward.stdout is not None
            assert "Forwarding" in forward.stdout.readline()
            self.access = {**self.access, "VODA_SERVER": f"http://127.0.0.1:{port}"}
            yield
        finally:
            forward.terminate()
            forward.communicate(timeout=10)

    def voda(self, *words: str) -> str:
        """Call the command line as a user does, and return what it prints."""
        return output_of_voda(*words, access=self.access)

    def submit(self, name: str, workers: str, *command: str, **variables: str) -> None:
        """Submit the elastic job of the README, as it is printed, with checkpoints on a disk that all nodes see."""
        program = ("--image", TRAIN_IMAGE, "--workers", workers, "--gpus-per-worker", "1", "--name", name)
        manifest = yaml.safe_load(
            self.voda("submit", *program, "--print", "--", *(command or ("torchrun", "train.py")))
        )
        pod = manifest["spec"]["template"]["spec"]
        kept = {"path": str(self.cluster.folder / "checkpoints" / name), "type": "DirectoryOrCreate"}
        pod["volumes"] = [{"name": "checkpoints", "hostPath": kept}]
        pod["containers"][0]["volumeMounts"] = [{"name": "checkpoints", "mountPath": "/checkpoints"}]
        env = {"CHECKPOINTS": "/checkpoints", **variables}
        pod["containers"][0]["env"] += [{"name": key, "value": value} for key, value in env.items()]
        path = self.cluster.folder / f"{name}.json"
        path.write_text(json.dumps(manifest))
        self.voda("submit", str(path))

    def status(self, job: str) -> Mapping[str, Any]:
        """Return how a job stands, as the API says it."""
        found: Mapping[str, Any] = json.loads(self.voda("get", job, "-o", "json"))
        return found

    def pods(self, job: str) -> Sequence[dict[str, Any]]:
        """Return the pods of a job that have not ended and are not being deleted."""
        label = f"batch.kubernetes.io/job-name={job}"
        found = json.loads(self.cluster.kubectl("get", "pods", "-l", label, "-o", "json"))["items"]
        return [
            pod
            for pod in found
            if pod["status"].get("phase") in ("Pending", "Running") and "deletionTimestamp" not in pod["metadata"]
        ]

    def steps(self, job: str) -> Sequence[Step]:
        """Return the latest steps that the job's workers printed, in order."""
        label = f"batch.kubernetes.io/job-name={job}"
        # Of the pods of a lost node there is no answer.
        said = self.cluster.kubectl("logs", "-l", label, "--tail=3000", "--ignore-errors", "--request-timeout=5s")
        steps = (Step(float(each["at"]), int(each["step"]), int(each["workers"])) for each in _STEP.finditer(said))
        return sorted(steps, key=lambda step: (step.at, step.step))

    def until_trains(self, job: str, workers: int, *, after: float = 0.0) -> Step:
        """Wait until the job makes its steps with so many workers; return the first of them after an instant."""
        found: list[Step] = []

        def trains() -> bool:
            steps = self.steps(job)
            found[:] = [step for step in steps if step.workers == workers and step.at > after]
            return bool(found) and steps[-1].workers == workers

        wait_until(
            trains,
            lambda: f"{job} with {workers}: {self.voda('explain', job)}\n{self.steps(job)[-3:]}",
            within_s=_SLOW_S,
        )
        return found[0]

    def planned_at(self, job: str) -> float:
        """Return when the latest plan that concerns a job was made."""
        latest = self.voda("events", "--job", job, "--type", "plan.adopted", "-o", "json").split("\n")[-2]
        return datetime.fromisoformat(json.loads(latest)["recorded_at"]).timestamp()


def output_of_voda(*words: str, access: Mapping[str, str] | None = None) -> str:
    """Call the command line as a user does, and return what it prints."""
    return output_of([sys.executable, *PROGRAM, *words], variables=access)


def image(dockerfile: Path, name: str) -> Path:
    """Return the archive of an image, built from a Dockerfile unless it is there of the same sources."""
    names = ("requirements.lock", "pyproject.toml", "deploy/build.lock", "tests/kube/node/dockerfile.py")
    own = [path for path in (ROOT / "voda").rglob("*") if path.is_file() and path.suffix != ".pyc"]
    sources = [dockerfile, *sorted(dockerfile.parent.glob("train.py")), *(ROOT / name for name in names), *sorted(own)]
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sources))
    archive = _IMAGES / f"{dockerfile.name}-{digest.hexdigest()[:16]}.tar"
    if not archive.exists():
        for old in _IMAGES.glob(f"{dockerfile.name}-*"):
            old.unlink()
        _IMAGES.mkdir(parents=True, exist_ok=True)
        part = archive.with_suffix(".part")
        builder = ["unshare", "--mount", sys.executable, "-m", "tests.kube.node.dockerfile"]
        output_of([*builder, str(dockerfile), str(ROOT), name, str(part)])
        part.rename(archive)
    return archive


def _disk(folder: Path) -> Sequence[dict[str, Any]]:
    """Return a StorageClass of local disks, and one such disk."""
    here = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [NODES[0]]}]}
    return [
        {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "StorageClass",
            "metadata": {"name": "local"},
            "provisioner": "kubernetes.io/no-provisioner",
            "volumeBindingMode": "WaitForFirstConsumer",
        },
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": "disk"},
            "spec": {
                "storageClassName": "local",
                "capacity": {"storage": "10Gi"},
                "accessModes": ["ReadWriteOnce"],
                "persistentVolumeReclaimPolicy": "Retain",
                "local": {"path": str(folder)},
                "nodeAffinity": {"required": {"nodeSelectorTerms": [here]}},
            },
        },
    ]
