"""Replicas of `voda serve` as processes of their own, to be killed and told to end.

Rule: they are what a Deployment's pods are: one log, one Lease, an API each.
"""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from tests.kube.world import World

_URL = re.compile(r"serves (http://\S+)")


class Replica:
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
        program: Sequence[str] = ("-c", "import voda.cli; voda.cli.main()"),
        environment: Mapping[str, str] | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.said = folder / "said"
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
        with self.said.open("ab") as said:
            self.process = subprocess.Popen(
                [sys.executable, *program, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                env={**_inherited(), "COLUMNS": "200", **(environment or {})},
            )

    @property
    def text(self) -> str:
        """What it said so far."""
        return self.said.read_text(errors="replace")

    @property
    def url(self) -> str:
        """Where its API is; empty until it serves."""
        found = _URL.search(self.text)
        return found[1] if found else ""

    @property
    def leads(self) -> bool:
        """Whether it said so last."""
        return self.text.rfind("leads pool=") > self.text.rfind("stepped down")

    def kill(self) -> None:
        """End it as a crash would."""
        self.process.kill()
        self.process.wait(10.0)

    def terminate(self) -> None:
        """Tell it to end, and do not wait."""
        self.process.send_signal(signal.SIGTERM)

    def is_over(self) -> bool:
        """Whether it has ended."""
        return self.process.poll() is not None


def _inherited() -> dict[str, str]:
    root = str(Path(__file__).resolve().parents[3])
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}  # noqa: TID251
    return {**kept, "PYTHONPATH": root}
