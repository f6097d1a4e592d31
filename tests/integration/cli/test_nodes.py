"""`voda nodes` against the real API: nodes whose GPUs pods share."""

import msgspec
import pytest

from tests.builders import a_node
from tests.served import Server
from voda.cli import EXIT_PERMANENT
from voda.domain.errors import NotFound
from voda.domain.gpus import ContainerGpus, GpuDevice, GpuRequest
from voda.domain.reasons.pods import PodGone
from voda.events.types import NodeJoined, ShareAssigned, ShareReleased


@pytest.fixture
def sharing(empty: Server) -> Server:
    """A server with a node of two GPUs, of one of which a pod has a share."""
    share = ContainerGpus(gpus=(1,), request=GpuRequest(milli=250, memory_mib=4_096))
    empty.happens(
        NodeJoined(node=a_node("g1", gpus=2, devices=(GpuDevice(memory_mib=16_384),) * 2)),
        ShareAssigned(node="g1", pod_uid="u1", pod="ml/notebook", containers={"main": share}),
    )
    return empty


def test_nodes_when_pods_share_gpus_lists_how_many_and_what_is_left(sharing: Server) -> None:
    lines = sharing.voda("nodes").stdout.splitlines()
    assert lines[:2] == [
        "NAME  STATUS  GPUS  USED  FREE  SHARED  MILLI LEFT  HELD BY",
        "g1    Ready      2     0     1     1/2         750  ml/notebook 250m",
    ]
    listed = msgspec.json.decode(sharing.voda("nodes", "-o", "json").stdout)
    assert [gpu["free_milli"] for gpu in listed["items"][0]["devices"]] == [1_000, 750]


def test_nodes_describe_shows_each_gpu_and_who_shares_it(sharing: Server) -> None:
    lines = sharing.voda("nodes", "describe", "g1").stdout.splitlines()
    assert lines[-3:] == [
        "GPU  MILLI FREE  MEMORY FREE  HELD BY      MILLI     MEMORY",
        "  0       1,000   16,384 MiB  -                -          -",
        "  1         750   12,288 MiB  ml/notebook    250  4,096 MiB",
    ]
    shown = msgspec.json.decode(sharing.voda("nodes", "describe", "g1", "-o", "json").stdout)
    assert shown["devices"][1]["shares"][0]["pod"] == "ml/notebook"
    with pytest.raises(NotFound, match="node 'g9' is not known"):
        sharing.voda("nodes", "describe", "g9")


def test_nodes_describe_without_a_name_says_which_nodes_there_are(sharing: Server) -> None:
    told = sharing.voda("nodes", "describe", exit_code=EXIT_PERMANENT).output
    assert "Missing argument 'NODE'. Known: g1, n1." in told


def test_events_of_shares_read_as_sentences(sharing: Server) -> None:
    sharing.happens(ShareReleased(node="g1", pod_uid="u1", pod="ml/notebook", reason=PodGone()))
    told = [line for line in sharing.voda("events").stdout.splitlines() if "notebook" in line]
    assert [line[line.index("node g1") :] for line in told] == [
        "node g1: ml/notebook gets 250 milli and 4,096 MiB of GPU 1",
        "node g1: ml/notebook has no GPU any more: the pod is gone",
    ]
