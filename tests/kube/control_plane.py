"""A real control plane on loopback: etcd and kube-apiserver, and on request its controllers and scheduler.

Rules: everything it starts ends with it, on whatever port was free; RBAC is on, as in any cluster. A part that ends by
itself is started again by `restart_ended`, as its kubelet would do.
"""

import json
import os
import ssl
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError

import yaml

from tests.kube.assets import ROOT, assets, manifests
from tests.ports import free_port

ADMIN = "admin-token"
OUTSIDER = "outsider-token"
"""Of a user without any rights."""
_WAIT_S = 240.0
_END_S = 3.0
_MOST_ENDS = 5
"""So often parts may end by themselves, of all tests of a session together."""
# Only what voda's cluster needs, so that two cores suffice: no cloud, no volumes, no endpoints of Services.
_CONTROLLERS = (
    *("job", "garbagecollector", "namespace", "nodelifecycle", "taint-eviction-controller", "podgc", "disruption"),
    *("deployment", "replicaset", "serviceaccount", "serviceaccount-token", "ttl-after-finished", "resourcequota"),
    *("resourceclaim-controller", "device-taint-eviction-controller"),
)
# As much as the server takes: the defaults, 20 and 50 requests a second, are for clusters that share it.
_UNHURRIED = ("--kube-api-qps=1000", "--kube-api-burst=2000")
UNHURRIED_GC: Mapping[str, str] = {**os.environ, "GOGC": "400"}  # noqa: TID251 - programs of the tests
"""The environment of programs in Go, which are to spend memory rather than time."""
MPI_V2 = "mpi-operator-0.8.0/kubeflow.org_mpijobs.yaml"
MPI_V1 = "training-operator-1.9.3/crds/kubeflow.org_mpijobs.yaml"
JOB_STATES = str(ROOT / "deploy" / "helm" / "voda" / "files" / "job-states.yaml")
JOBSET = "jobset-0.10.1/crd/bases/jobset.x-k8s.io_jobsets.yaml"
TRAINERS = tuple(
    f"trainer-2.0.0/crds/trainer.kubeflow.org_{plural}.yaml"
    for plural in ("trainjobs", "trainingruntimes", "clustertrainingruntimes")
)
PYTORCH = "training-operator-1.9.3/crds/kubeflow.org_pytorchjobs.yaml"
"""CustomResourceDefinitions, by file; both MPIJobs are called alike, so that a cluster has one of them."""


class ControlPlane:
    """One cluster without nodes.

    Args:
        folder: of its data, logs and certificates; there already.
        controller_flags: of kube-controller-manager, whenever it is started.
    """

    def __init__(self, folder: Path, controller_flags: Sequence[str] = ()) -> None:
        self.folder = folder
        self._controller_flags = controller_flags
        self._assets = assets()
        self._etcd_port, self._peer_port, self.port = free_port(), free_port(), free_port()
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._commands: dict[str, Sequence[str]] = {}
        self._ends: list[str] = []
        """How parts ended by themselves."""

    @property
    def url(self) -> str:
        """Where the API server listens."""
        return f"https://127.0.0.1:{self.port}"

    @property
    def certificate(self) -> Path:
        """The certificate that the API server signed for itself."""
        return self.folder / "certs" / "apiserver.crt"

    def start(self) -> None:
        """Start etcd and the API server, and return when it is ready."""
        self._write_secrets()
        self.start_etcd()
        self.start_api_server()

    def start_etcd(self) -> None:
        """Start etcd."""
        client, peer = f"http://127.0.0.1:{self._etcd_port}", f"http://127.0.0.1:{self._peer_port}"
        self._run(
            "etcd",
            f"--data-dir={self.folder / 'etcd'}",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
            # What is proven here is our own behaviour; that etcd is durable, etcd's tests prove.
            "--unsafe-no-fsync",
            "--backend-batch-interval=500ms",
        )

    def start_api_server(self, *flags: str) -> None:
        """Start the API server, and return when it is ready; again on the same port after `stop`."""
        key = self.folder / "sa.key"
        self._run(
            "kube-apiserver",
            f"--etcd-servers=http://127.0.0.1:{self._etcd_port}",
            f"--cert-dir={self.folder / 'certs'}",
            f"--secure-port={self.port}",
            "--bind-address=127.0.0.1",
            f"--service-account-key-file={key}",
            f"--service-account-signing-key-file={key}",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--token-auth-file={self.folder / 'tokens.csv'}",
            "--authorization-mode=RBAC",
            "--service-cluster-ip-range=10.96.0.0/16",
            "--disable-admission-plugins=ServiceAccount",
            "--allow-privileged=true",
            "--max-requests-inflight=1000",
            "--max-mutating-requests-inflight=500",
            *flags,
        )
        self._wait_until_ready()

    def interrupt_api_server(self, away_s: float) -> None:
        """Let the API server be away for so many seconds.

        Controllers and scheduler begin anew, as those of a real cluster do, which lose their leadership meanwhile:
        otherwise the garbage collector never collects what an object owned that went, and came again by its name,
        while it was blind.
        """
        led = [name for name in ("kube-controller-manager", "kube-scheduler") if name in self._processes]
        self.stop(*led, "kube-apiserver")
        time.sleep(away_s)
        self.start_api_server()
        for name in led:
            self._start(name)

    def start_controllers(self) -> None:
        """Start kube-controller-manager: Jobs, garbage collection, node lifecycle."""
        key = self.folder / "sa.key"
        self._run(
            "kube-controller-manager",
            f"--kubeconfig={self.kubeconfig()}",
            f"--service-account-private-key-file={key}",
            "--use-service-account-credentials=false",
            "--leader-elect=false",
            "--secure-port=0",
            f"--controllers={','.join(_CONTROLLERS)}",
            # Nobody sends the nodes' heartbeats; they are ready or not as their tests say.
            "--node-monitor-grace-period=24h",
            "--node-startup-grace-period=24h",
            "--node-monitor-period=1s",
            "--concurrent-gc-syncs=10",
            *_UNHURRIED,
            *self._controller_flags,
        )

    def start_scheduler(self, *flags: str) -> None:
        """Start kube-scheduler, which places all pods that name no other scheduler."""
        self._run(
            "kube-scheduler",
            f"--kubeconfig={self.kubeconfig()}",
            "--leader-elect=false",
            "--secure-port=0",
            *_UNHURRIED,
            *flags,
        )

    def start_another_scheduler(self, name: str, configuration: Mapping[str, Any]) -> None:
        """Start one more kube-scheduler, with a KubeSchedulerConfiguration of its own; `stop(name)` ends it."""
        client = {"kubeconfig": str(self.kubeconfig()), "qps": 1000, "burst": 2000}
        whole = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "clientConnection": client,
            "leaderElection": {"leaderElect": False},
            **configuration,
        }
        path = self.folder / f"{name}.yaml"
        path.write_text(yaml.safe_dump(whole))
        self._run(name, f"--config={path}", "--secure-port=0", program="kube-scheduler")

    def install(self, *definitions: str) -> None:
        """Install CustomResourceDefinitions, and return when what they define is served."""
        path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        for name in definitions:
            body = yaml.load((manifests() / name).read_text(), yaml.CSafeLoader)
            self.create(path, body)
            spec = body["spec"]
            served = f"/apis/{spec['group']}/{spec['versions'][0]['name']}/{spec['names']['plural']}"
            self.wait_until(partial(self._serves, served), f"{served} is served")

    def create(self, path: str, body: Mapping[str, Any]) -> None:
        """Create an object, given the path of its kind; one that is there stays as it is."""
        status, said = self._ask(path, json.dumps(body).encode())
        assert status in (201, 409), f"{path}: {status} {said[:500]!r}"

    def create_namespace(self, name: str) -> None:
        """Create a namespace."""
        self.create("/api/v1/namespaces", {"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": name}})

    def get(self, path: str) -> bytes:
        """Return an object."""
        status, said = self._ask(path)
        assert status == 200, f"{path}: {status} {said[:500]!r}"
        return said

    def kubeconfig(self, token: str = ADMIN, name: str = "admin") -> Path:
        """Write a kubeconfig for the bearer of a token, and return its path."""
        path = self.folder / f"{name}.kubeconfig"
        cluster = {"server": self.url, "certificate-authority": str(self.certificate)}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "tests", "cluster": cluster}],
            "users": [{"name": name, "user": {"token": token}}],
            "contexts": [{"name": "tests", "context": {"cluster": "tests", "user": name}}],
            "current-context": "tests",
        }
        # Whole or not at all: a program that is just starting must not read half of it.
        draft = path.with_suffix(".new")
        draft.write_text(yaml.safe_dump(config))
        draft.replace(path)
        return path

    def stop(self, *names: str) -> None:
        """Stop what is named (etcd, kube-apiserver, ...); all of it where nothing is named."""
        for name in names or tuple(reversed(self._processes)):
            process = self._processes.pop(name)
            process.terminate()
            try:
                # The API server would wait for a minute until nobody watches any more.
                process.wait(_END_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(_WAIT_S)

    def kill(self, name: str) -> None:
        """End a part as a crash would."""
        process = self._processes.pop(name)
        process.kill()
        process.wait(_WAIT_S)

    def restart_ended(self) -> None:
        """Start again each part that has ended by itself; fail where they do so time and again."""
        assert len(self._ends) < _MOST_ENDS, "\n".join(self._ends)
        for name, process in list(self._processes.items()):
            if (code := process.poll()) is not None:
                self._ends.append(f"{name} ended with {code} and was started again: {self.log(name)[-2000:]}")
                del self._processes[name]
                self._start(name)

    def picture(self) -> str:
        """Return how its parts are, for whoever has to find out why a test failed."""
        parts = list(self._processes.items())
        states = [f"{name} {'runs' if it.poll() is None else 'has ended'}" for name, it in parts]
        return "\n".join([", ".join(states), *self._ends])

    def pid(self, name: str) -> int:
        """Return the process of a part."""
        return self._processes[name].pid

    def cpu_s(self) -> dict[str, float]:
        """Return part -> seconds of CPU it used so far."""
        used: dict[str, float] = {}
        for name, process in self._processes.items():
            fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
            used[name] = (int(fields[11]) + int(fields[12])) / 100.0
        return used

    def log(self, name: str) -> str:
        """Return what a part said."""
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def _run(self, name: str, *flags: str, program: str = "") -> None:
        assert name not in self._processes, f"{name} runs already"
        self._commands[name] = [str(self._assets / (program or name)), *flags]
        self._start(name)

    def _start(self, name: str) -> None:
        with (self.folder / f"{name}.log").open("ab") as said:
            self._processes[name] = subprocess.Popen(
                self._commands[name],
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                cwd=self.folder,
                env=UNHURRIED_GC,
            )

    def _write_secrets(self) -> None:
        openssl: Sequence[str] = ("openssl", "genrsa", "-out", str(self.folder / "sa.key"), "2048")
        subprocess.run(openssl, check=True, capture_output=True, timeout=_WAIT_S)
        tokens = (f'{ADMIN},admin,admin,"system:masters"', f"{OUTSIDER},outsider,outsider")
        (self.folder / "tokens.csv").write_text("\n".join(tokens) + "\n")

    def _wait_until_ready(self) -> None:
        process = self._processes["kube-apiserver"]

        def is_ready() -> bool:
            assert process.poll() is None, f"kube-apiserver ended: {self.log('kube-apiserver')[-2000:]}"
            return self._serves("/readyz")

        self.wait_until(is_ready, "kube-apiserver is ready")

    def _serves(self, path: str) -> bool:
        return self._ask(path)[0] == 200

    def wait_until(self, holds: Callable[[], bool], what: str) -> None:
        """Wait until something holds."""
        until = time.perf_counter() + _WAIT_S
        while not holds():
            assert time.perf_counter() < until, f"waited {_WAIT_S:g} s in vain until {what}"
            time.sleep(0.05)

    def is_ready(self) -> bool:
        """Say whether the API server answers that it is ready, at once."""
        return self._ask("/readyz", within_s=1.0)[0] == 200

    def _ask(self, path: str, body: bytes | None = None, within_s: float = 10.0) -> tuple[int, bytes]:
        """Send one request, and return status and answer; status 0 where nobody answers."""
        headers = {"Authorization": f"Bearer {ADMIN}", "Content-Type": "application/json"}
        request = urllib.request.Request(f"{self.url}{path}", data=body, headers=headers)
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        try:
            with urllib.request.urlopen(request, timeout=within_s, context=context) as answer:
                return int(answer.status), answer.read()
        except HTTPError as error:
            with error:
                return error.code, error.read()
        except (URLError, OSError):
            return 0, b""


def running(
    *,
    controllers: bool = True,
    scheduler: bool = False,
    definitions: Sequence[str] = (),
    controller_flags: Sequence[str] = (),
) -> ControlPlane:
    """Start a control plane in a folder of its own; the caller stops it.

    Args:
        controllers: whether kube-controller-manager runs.
        scheduler: whether kube-scheduler runs.
        definitions: CustomResourceDefinitions to install (see `ControlPlane.install`).
        controller_flags: of kube-controller-manager, beside its own.
    """
    plane = ControlPlane(Path(tempfile.mkdtemp(prefix="voda-kube-")), controller_flags)
    try:
        plane.start()
        # First the definitions: the garbage collector learns of later ones only after half a minute.
        plane.install(*definitions)
        if controllers:
            plane.start_controllers()
        if scheduler:
            plane.start_scheduler()
    except BaseException:
        plane.stop()
        raise
    return plane
