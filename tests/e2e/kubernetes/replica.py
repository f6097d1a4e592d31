"""Replicas of `voda serve` on a Kubernetes cluster, as processes of their own.

Rule: they are what a Deployment's pods are: one log, one Lease, an API each.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from tests.kube.world import World
from tests.served_process import PROGRAM, ServedProcess


class Replica(ServedProcess):
    """One process.

    Args:
        world: whose API server.
        folder: of this replica alone.
        log: shared by all replicas.
        kubeconfig: as whom; the admin by default.
        program: what is run instead of `voda serve`; gets the same arguments.
        settings: fields of the settings file.
    """

    def __init__(  # noqa: PLR0913 - what a pod's manifest says
        self,
        world: World,
        folder: Path,
        log: str,
        *,
        kubeconfig: Path | None = None,
        program: Sequence[str] = PROGRAM,
        environment: Mapping[str, str] | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        fields = {
            "log": log,
            "home": str(folder),
            "listen": {"host": "127.0.0.1", "port": 0},
            "cluster": {"defaultPool": ""},
            "leader": {"namespace": world.namespace, "leaseSeconds": 3.0, "renewSeconds": 2.0, "retrySeconds": 0.3},
            "pools": {"v100": {"ratelimitSeconds": 0.0}},
            **(settings or {}),
        }
        config = folder / "voda.yaml"
        config.write_text(yaml.safe_dump(fields))
        arguments = ["serve", "--config", str(config), "--no-tokens", "--verbose"]
        arguments += ["--kubeconfig", str(kubeconfig or world.plane.kubeconfig())]
        super().__init__(folder / "said", arguments, program=program, environment=environment)
