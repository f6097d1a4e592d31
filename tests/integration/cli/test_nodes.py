"""`voda nodes` against the real API: nodes whose cards pods share."""

import msgspec
import pytest

from tests.builders import a_node, a_spec
from tests.served import Server
from voda.cli import EXIT_PERMANENT
from voda.domain.errors import AlreadyExists, InvalidInput, NotFound
from voda.domain.gpus import CardShare, GpuDevice, GpuRequest, Gpus
from voda.domain.shares import RESTARTABLE
from voda.events.types import JobSubmitted, NodeJoined, ShareAssigned, ShareReleased, WorkerStarted


@pytest.fixture
def sharing(empty: Server) -> Server:
    """A server with a node of two cards, of one of which a pod has a share."""
    share = CardShare(cards=(1,), request=GpuRequest(milli=250, memory_mib=4_096))
    empty.happens(
        NodeJoined(node=a_node("g1", gpus=2, devices=(GpuDevice(memory_mib=16_384),) * 2)),
        ShareAssigned(node="g1", pod_uid="u1", pod="ml/notebook", containers={"main": share}),
    )
    return empty


def test_nodes_when_pods_share_cards_lists_how_many_and_what_is_left(sharing: Server) -> None:
    lines = sharing.voda("nodes").stdout.splitlines()
    assert lines[:2] == [
        "NAME  STATUS  GPUS  USED  FREE  SHARED  MILLI LEFT  HELD BY",
        "g1    Ready      2     0     1     1/2         750  ml/notebook 250m",
    ]
    listed = msgspec.json.decode(sharing.voda("nodes", "-o", "json").stdout)
    assert [card["free_milli"] for card in listed["items"][0]["devices"]] == [1_000, 750]


def test_nodes_describe_shows_each_card_and_who_shares_it(sharing: Server) -> None:
    lines = sharing.voda("nodes", "describe", "g1").stdout.splitlines()
    assert lines[-3:] == [
        "CARD  MILLI FREE  MEMORY FREE  HELD BY      MILLI     MEMORY",
        "   0       1,000   16,384 MiB  -                -          -",
        "   1         750   12,288 MiB  ml/notebook    250  4,096 MiB",
    ]
    shown = msgspec.json.decode(sharing.voda("nodes", "describe", "g1", "-o", "json").stdout)
    assert shown["devices"][1]["shares"][0]["pod"] == "ml/notebook"
    with pytest.raises(NotFound, match="node 'g9' is not known"):
        sharing.voda("nodes", "describe", "g9")


def test_nodes_describe_without_a_name_says_which_nodes_there_are(sharing: Server) -> None:
    told = sharing.voda("nodes", "describe", exit_code=EXIT_PERMANENT).output
    assert "Missing argument 'NODE'. Known: g1, n1." in told


def test_events_of_shares_read_as_sentences(sharing: Server) -> None:
    sharing.happens(ShareReleased(node="g1", pod_uid="u1", pod="ml/notebook", reason="the pod is gone"))
    told = [line for line in sharing.voda("events").stdout.splitlines() if "notebook" in line]
    assert [line[line.index("node g1") :] for line in told] == [
        "node g1: ml/notebook gets 250 milli and 4,096 MiB of card 1",
        "node g1: ml/notebook has no card any more: the pod is gone",
    ]


def test_nodes_fragmentation_shows_what_is_free_and_of_no_use_by_node_and_by_kind(sharing: Server) -> None:
    shown = sharing.voda("nodes", "--fragmentation").stdout.splitlines()
    assert shown[:5] == [
        "NODE  CARDS  WHOLE FREE  FREE MILLI  FRAGMENT  OF FREE",
        "g1        2           1       1,750         0       0%",
        "",
        "ASKS FOR              PODS  CAN USE  LOST  OF FREE  ROOM FOR",
        "250 milli, 4,096 MiB     1    1,750     0       0%         7",
    ]
    assert max(map(len, shown)) <= 80
    told = msgspec.json.decode(sharing.voda("nodes", "list", "--fragmentation", "-o", "json").stdout)
    assert [node["free_milli"] for node in told["items"][0]["nodes"]] == [1_750]
    assert sharing.voda("nodes", "--fragmentation", "--pool", "default", "-o", "name").stdout == "g1\n"


def test_nodes_fragmentation_where_no_cards_are_shared_says_how_to_share_some(empty: Server) -> None:
    assert "Pool default: no node has cards that pods may share" in empty.voda("nodes", "--fragmentation").stdout


def test_nodes_fragmentation_of_single_nodes_or_as_a_watch_is_refused(empty: Server) -> None:
    for arguments in (("list", "g1", "--fragmentation"), ("--fragmentation", "-w")):
        with pytest.raises(InvalidInput, match="--fragmentation tells of whole pools"):
            empty.voda("nodes", *arguments)


def test_help_of_nodes_list_has_an_example_of_fragmentation(empty: Server) -> None:
    assert "voda nodes --fragmentation" in empty.voda("nodes", "list", "--help").stdout


def test_nodes_defragment_shows_what_moves_and_what_is_free_then(sharing: Server) -> None:
    share = CardShare(cards=(0,), request=GpuRequest(milli=500))
    manifest = {"metadata": {"annotations": {RESTARTABLE: "true"}}}
    spec = a_spec("nb", share=share.request, gpus_per_replica=Gpus(0), manifest=manifest)
    sharing.happens(
        JobSubmitted(spec=spec),
        ShareAssigned(node="g1", pod_uid="nb", pod="default/nb", containers={"share": share}),
        WorkerStarted(job_id="nb", workers={0: "g1"}),
    )
    shown = sharing.voda("nodes", "defragment", "--dry-run").stdout.splitlines()
    assert shown == [
        "POD         MILLI  MEMORY  FROM       TO",
        "default/nb    500       -  g1 card 0  g1 card 1",
        "",
        "Become whole: g1 card 0.",
        "",
        "                   NOW  AFTER",
        "cards wholly free    0      1",
        "fragment, milli      0    125",
        "",
        "Nothing was requested: leave out --dry-run for that.",
    ]
    done = msgspec.json.decode(sharing.voda("nodes", "defragment", "--moves", "3", "-o", "json").stdout)
    assert [move["pod_uid"] for pool in done["items"] for move in pool["moves"]] == ["nb"]
    assert "nb moves from card 0 of g1 to card 1 of g1" in sharing.voda("events").stdout
    with pytest.raises(AlreadyExists, match="of 1 move requested by admin, 0 are done"):
        sharing.voda("nodes", "defragment")
    told = " ".join(sharing.voda("nodes", "defragment", "--dry-run").stdout.split())
    assert told.startswith(
        "Pool default: moves are under way: of 1 move requested by admin, 0 are done; the rest, until"
    )
    assert "at the most: default/nb from card 0 of g1 to card 1 of g1. A request is refused meanwhile" in told
    assert "voda nodes defragment --dry-run" in sharing.voda("nodes", "defragment", "--help").stdout


def test_nodes_defragment_where_nothing_may_move_says_why(sharing: Server) -> None:
    shown = sharing.voda("nodes", "defragment").stdout.splitlines()
    assert " ".join(shown).startswith(
        "Pool default: nothing moves: the one shared card has a share that is not to be moved"
    )
    assert max(map(len, shown)) <= 80
