"""What is free of cards and of no use, on a terminal of 80 columns."""

from voda.api.schemas.fragmentation import FragmentationView, KindFragmentView, NodeFragmentView
from voda.cli.render.fragmentation import fragmentation_text


def a_node_view(node: str = "gpu-1", **fields: object) -> NodeFragmentView:
    values = {"is_open": True, "cards": 4, "whole_free_cards": 1, "free_milli": 1_650, "fragment_milli": 433.3}
    return NodeFragmentView(node=node, **{**values, **fields})  # type: ignore[arg-type]


def a_kind(lost: int = 650, **fields: int) -> KindFragmentView:
    values = {"devices": 0, "milli": 0, "memory_mib": 0, "pods": 3, "share": 0.5, "more_pods": 2}
    return KindFragmentView(usable_milli=9_650 - lost, lost_milli=lost, **{**values, **fields})  # type: ignore[arg-type]


NODES = (
    a_node_view(),
    a_node_view("gpu-2", cards=8, whole_free_cards=8, free_milli=8_000, fragment_milli=0.0),
    a_node_view("gpu-3", is_open=False, whole_free_cards=0, free_milli=0, fragment_milli=0.0),
)
KINDS = (
    a_kind(milli=400, memory_mib=20_480),
    a_kind(1_650, devices=2, pods=1, more_pods=4),
    a_kind(0, milli=100, pods=1, more_pods=96),
)
SHARED = FragmentationView(pool="default", nodes=NODES, kinds=KINDS, rare_pods=1)
WITHOUT = FragmentationView(pool="cpu", nodes=(), kinds=(), rare_pods=0)


def lines(*pools: FragmentationView, width: int | None = 80) -> list[str]:
    return [line.plain for line in fragmentation_text(pools, width=width)]


def test_pool_is_nodes_with_their_total_then_kinds_then_what_the_words_mean() -> None:
    assert lines(SHARED) == [
        "NODE   CARDS  WHOLE FREE  FREE MILLI  FRAGMENT  OF FREE",
        "gpu-1      4           1       1,650       433      26%",
        "gpu-2      8           8       8,000         0       0%",
        "gpu-3      4           0           0         0        -",
        "total     16           9       9,650       433       4%",
        "",
        "Nothing counts as free where no pod may come now: gpu-3.",
        "",
        "ASKS FOR               PODS  CAN USE   LOST  OF FREE  ROOM FOR",
        "400 milli, 20,480 MiB     3    9,000    650       7%         2",
        "2 whole cards             1    8,000  1,650      17%         4",
        "100 milli                 1    9,650      0       0%        96",
        "",
        "The fragment is what is free and of no use to the next pod, on average over",
        "these kinds (FGD). Memory counts in ROOM FOR alone: how many more such pods fit.",
        "1 pod with rarer requests is left out.",
    ]


def test_pool_without_cards_is_a_sentence_that_says_how_it_gets_some() -> None:
    assert " ".join(lines(WITHOUT)) == (
        "Pool cpu: no node has cards that pods may share; docs/shared-gpus.md says how nodes come to have some."
    )
    assert lines(WITHOUT, SHARED)[2:5] == ["", "Pool: default", lines(SHARED)[0]]


def test_pool_without_shares_says_why_the_fragment_is_not_known() -> None:
    node = a_node_view(whole_free_cards=4, free_milli=4_000, fragment_milli=None)
    shown = lines(FragmentationView(pool="default", nodes=(node,), kinds=(), rare_pods=0))
    assert shown[:2] == [
        "NODE   CARDS  WHOLE FREE  FREE MILLI  FRAGMENT  OF FREE",
        "gpu-1      4           4       4,000         -        -",
    ]
    assert shown[3:] == [
        "Fragment not known: no pod or job has compute of a card, so it cannot be said",
        "what is of no use to others like it: ask again once one has, such as by",
        "`voda submit --gpu-milli 250 -- python serve.py`.",
    ]


def test_machine_that_shares_no_gpus_says_why_and_not_to_submit_a_part() -> None:
    without = FragmentationView(pool="cpu", nodes=(), kinds=(), rare_pods=0, not_shared="this machine has no GPUs")
    assert lines(without) == ["Pool cpu: this machine has no GPUs."]
    node = a_node_view(whole_free_cards=4, free_milli=4_000, fragment_milli=None)
    why = "GPUs are not shared on this machine: MPS does not run; `voda up --gpu-sharing plain` shares them"
    shown = lines(FragmentationView(pool="default", nodes=(node,), kinds=(), rare_pods=0, not_shared=why))
    assert " ".join(shown[3:]) == f"Fragment not known: {why}."


def test_long_names_are_cut_and_cannot_command_the_terminal() -> None:
    long = a_node_view("\x1b[31m" + "n" * 90, is_open=False, cards=10_000, free_milli=10_000_000)
    shown = lines(FragmentationView(pool="p\x1b[1m" * 30, nodes=(long,), kinds=KINDS, rare_pods=0), WITHOUT)
    assert "\x1b" not in "".join(shown)
    table = [line for line in shown if line.startswith(("NODE", "\N{REPLACEMENT CHARACTER}[31mnnnn"))]
    assert max(map(len, table)) <= 80
