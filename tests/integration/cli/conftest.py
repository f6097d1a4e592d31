"""A server with a cluster of one node of four GPUs, on which three jobs were submitted."""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from tests.reasons import worded
from tests.served import Printed, Server, served
from tests.service import a_manifest
from voda.domain.gpus import Gpus
from voda.domain.reasons.outcomes import Waits
from voda.events.types import JobProgressed, PlanAdopted, WorkerStarted

LINES = b"".join(b"epoch %d\n" % number for number in range(1, 1001))


@pytest.fixture
def empty(tmp_path: Path) -> Iterator[Server]:
    """A server with nodes and no job."""
    with served(tmp_path) as server:
        yield server


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """A server on which digits runs on two, resnet on one, and bert waits."""
    printed = Printed({("digits", "launcher"): LINES, ("digits", "worker-1"): b"no end of line"})
    with served(tmp_path, outputs=printed) as server:
        for name, most in (("digits", 4), ("resnet", 2), ("bert", 3)):
            manifest = a_manifest(name, workers=1, min_replicas=1, max_replicas=most, epochs=20)
            server.voda("submit", "-", input=msgspec.json.encode(manifest))
        server.happens(
            PlanAdopted(
                pool="default",
                number=1,
                based_on=4,
                policy="elastic-fifo",
                placer="steady",
                cause="job.submitted",
                placed={"digits": ("n1", "n1"), "resnet": ("n1",)},
                reasons={
                    "digits": worded("starts on 2"),
                    "resnet": worded("its minimum"),
                    "bert": Waits(needs=Gpus(1)),
                },
            ),
            WorkerStarted(job_id="digits", workers={0: "n1", 1: "n1"}),
            WorkerStarted(job_id="resnet", workers={0: "n1"}),
            JobProgressed(job_id="digits", epochs_done=3, workers=2, epoch_s=1.5, metrics={"accuracy": 0.9}),
        )
        yield server
