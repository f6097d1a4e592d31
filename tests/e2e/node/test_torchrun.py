"""torchrun on real nodes: a job holds what it learnt through resizes, failures and old versions of torch.

Each test ends its own jobs.
"""

import json
import statistics
import sys
from collections.abc import Iterator, Sequence
from itertools import pairwise

import pytest

from tests.kube.node.installation import Installation
from voda import config

SIZES = (1, 2, 3, 2, 3, 1, 4)
RESIZES = int(config.environment().get("RESIZES", "6"))
"""`make e2e-node RESIZES=50` takes more of them."""
OLD_TORCH = {"PATH": "/usr/bin:/bin", "PET_REDIRECTS": "1", "PET_TEE": "1"}
"""Debian's torch 1.13, which needs the other two on Python 3.11 to start at all."""
FAILS_ONCE = "if [ $RANK = 1 ] && mkdir $CHECKPOINTS/failed; then sleep 1; exit 3; fi; exec python3 train.py"


@pytest.fixture
def voda(installation: Installation) -> Iterator[Installation]:
    with installation.forwarded():
        installation.voda("settings", "--ratelimit", "1")
        yield installation
        installation.voda("settings", "--ratelimit", "30")
        if jobs := installation.voda("get", "jobs", "-o", "name").split():
            installation.voda("delete", "--yes", "--wait", *jobs)


def test_job_whatever_the_sizes_it_is_given_trains_at_each_of_them_and_no_failure_is_counted(
    voda: Installation,
) -> None:
    voda.submit("train", "1")
    step = voda.until_trains("train", 1)
    colds, resizes = [step.at - voda.planned_at("train")], []
    sizes = [SIZES[at % len(SIZES)] for at in range(RESIZES + 1)]
    for before, size in pairwise(sizes):
        voda.voda("scale", "train", str(size))
        resized = voda.until_trains("train", size, after=step.at)
        assert resized.step > step.step
        resizes.append((before, size, resized.at - voda.planned_at("train")))
        step = resized
    assert voda.status("train")["phase"] == "Running"
    assert (failures(voda, "train"), failed_pods(voda, "train")) == (0, [])
    tell(colds[0], resizes)


def test_replica_that_fails_once_is_one_failure_and_all_of_them_train_on(voda: Installation) -> None:
    voda.submit("train", "2", "torchrun", "--no-python", "sh", "-c", FAILS_ONCE)
    voda.until_trains("train", 2)
    assert (failures(voda, "train"), len(failed_pods(voda, "train"))) == (1, 1)


def test_older_torch_is_resized_too(voda: Installation) -> None:
    voda.submit("train", "1", **OLD_TORCH)
    begun = voda.until_trains("train", 1)
    voda.voda("scale", "train", "2")
    assert voda.until_trains("train", 2).step > begun.step


def failures(voda: Installation, job: str) -> int:
    """Return how many workers failed by themselves, as the log has it."""
    lines = voda.voda("events", "--job", job, "--type", "worker.exited", "-o", "json").splitlines()
    exits = [json.loads(line)["data"] for line in lines]
    return sum(len(each["workers"]) for each in exits if each.get("cause") == "failed")


def failed_pods(voda: Installation, job: str) -> Sequence[str]:
    label = f"batch.kubernetes.io/job-name={job}"
    selected = ("-l", label, "--field-selector=status.phase=Failed")
    return voda.cluster.kubectl("get", "pods", *selected, "-o", "name").split()


def tell(cold_s: float, resizes: Sequence[tuple[int, int, float]]) -> None:
    """Print how long resizes took, beside the yardstick: the first start of the same pod, one worker."""
    each = ", ".join(f"{before} to {size} {took_s:.1f} s" for before, size, took_s in resizes)
    spans = sorted(took_s for *_, took_s in resizes)
    middle, most = statistics.median(spans), spans[min(len(spans) - 1, int(0.95 * len(spans)))]
    sys.stdout.write(f"\nfrom the plan to the first step: {each}\n")
    sys.stdout.write(
        f"{len(spans)} resizes: median {middle:.1f} s, p95 {most:.1f} s; the first start of one worker: {cold_s:.1f} s;"
        f" median / first start: {middle / cold_s:.2f}\n"
    )
