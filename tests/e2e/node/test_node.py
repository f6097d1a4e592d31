"""What README and docs/install-kubernetes.md say, on real nodes: chart, elastic jobs, a rolling update, a lost node.

Each test ends its own jobs.
"""

import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence

import pytest

from tests.kube.node.cluster import GPUS, NODES
from tests.kube.node.installation import Installation, readme_commands
from tests.served_process import PROGRAM
from tests.waiting import wait_until
from voda import config

ALL = len(NODES) * GPUS
_LONGEST_RESIZE_S = 120.0
"""From a plan to the first step in the new size: several times what it takes, far less than a worker that hangs."""


@pytest.fixture
def voda(installation: Installation) -> Iterator[Installation]:
    with installation.forwarded():
        yield installation
    with installation.forwarded():
        if jobs := installation.voda("get", "jobs", "-o", "name").split():
            installation.voda("delete", "--yes", "--wait", *jobs)


def test_chart_when_installed_passes_its_own_test(installation: Installation) -> None:
    assert "Phase:          Succeeded" in installation.helm("test", "voda", "--timeout", "120s")


def test_readme_when_followed_trains_an_elastic_job_on_all_gpus_until_its_program_ends(voda: Installation) -> None:
    _, submit, describe = readme_commands()
    voda.type(*submit)
    voda.until_trains("my-job", ALL)
    assert "Started" in voda.type(*describe)
    assert f"of {ALL} workers" in voda.voda("logs", "my-job", "--tail", "5")
    assert voda.type(*kubectl_exec(voda, "my-job"), "ls", "train.py") == "train.py\n"
    voda.type(*kubectl_exec(voda, "my-job"), "touch", "/tmp/end")
    wait_until(lambda: "Completed" in voda.voda("get", "my-job"), lambda: voda.voda("explain", "my-job"))


def kubectl_exec(voda: Installation, job: str) -> Sequence[str]:
    """Return what `voda exec` says to type instead, up to the command."""
    refused = subprocess.run(
        [sys.executable, *PROGRAM, "exec", job, "--yes", "--", "true"],
        env={**config.environment(), **voda.access},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    words = refused.stderr.partition("kubectl does: ")[2].split()
    return words[: words.index("COMMAND")]


def test_job_when_another_comes_and_goes_shrinks_and_grows_and_its_training_goes_on(voda: Installation) -> None:
    voda.submit("first", f"1-{ALL}")
    begun = voda.until_trains("first", ALL)
    voda.submit("second", f"1-{ALL}")
    wait_until(lambda: planned(voda, "first") < ALL, lambda: voda.voda("explain", "first"))
    smaller = planned(voda, "first")
    planned_at = voda.planned_at("first")
    shrunk = voda.until_trains("first", smaller, after=planned_at)
    assert shrunk.step > begun.step
    voda.until_trains("second", ALL - smaller)
    voda.voda("delete", "second", "--yes")
    grown = voda.until_trains("first", ALL, after=shrunk.at)
    assert grown.step > shrunk.step
    spans = {smaller: shrunk.at - planned_at, ALL: grown.at - voda.planned_at("first")}
    tell_resize(spans, f"shrunk as another job starts {ALL - smaller} workers")


def test_training_when_voda_is_rolled_goes_on_and_is_resized_by_the_next_replica(voda: Installation) -> None:
    voda.submit("first", f"1-{ALL}")
    begun = voda.until_trains("first", ALL)
    pods = uids(voda, "first")
    voda.upgrade("podAnnotations.rolled=again")
    with voda.forwarded():
        assert voda.until_trains("first", ALL, after=voda.steps("first")[-1].at).step > begun.step
        assert uids(voda, "first") == pods
        asked_at = voda.steps("first")[-1].at
        voda.voda("scale", "first", "--workers", f"1-{GPUS}")
        assert voda.until_trains("first", GPUS, after=asked_at).step > begun.step


def test_training_when_a_node_is_lost_goes_on_with_the_other_one_and_takes_it_back(voda: Installation) -> None:
    voda.submit("first", f"1-{ALL}")
    begun = voda.until_trains("first", ALL)
    lost_at = voda.steps("first")[-1].at
    voda.cluster.lose(NODES[1])
    try:
        smaller = voda.until_trains("first", GPUS, after=lost_at)
        assert smaller.step > begun.step
    finally:
        voda.cluster.restore(NODES[1])
    grown = voda.until_trains("first", ALL, after=smaller.at)
    sys.stdout.write(f"\nfrom the loss of a node to the first step without it: {smaller.at - lost_at:.1f} s\n")
    assert grown.step > smaller.step


def tell_resize(spans: Mapping[int, float], when: str) -> None:
    """Print how long resizes took, by the number of workers after each."""
    assert max(spans.values()) < _LONGEST_RESIZE_S, spans
    told = ", ".join(f"{span:.1f} s with {workers} workers" for workers, span in spans.items())
    sys.stdout.write(f"\nfrom the plan to the first step, {when}: {told}\n")


def planned(voda: Installation, job: str) -> int:
    return int(voda.status(job)["planned_replicas"])


def uids(voda: Installation, job: str) -> set[str]:
    return {pod["metadata"]["uid"] for pod in voda.pods(job)}
