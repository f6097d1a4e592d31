"""What is free of the cards of pools for people: how much of it is of no use, by node and by what pods ask for; and
which parts of cards move so that whole cards become free.

Rule: pure; text of others cannot command the terminal; at most 80 columns where the terminal has no more.
"""

import re
from collections.abc import Sequence
from textwrap import wrap
from typing import Final

from rich.text import Text

from voda.api.schemas.defragmentation import DefragmentationView, NodeCardView, ShareMoveView
from voda.api.schemas.fragmentation import FragmentationView, KindFragmentView, NodeFragmentView
from voda.cli.render.job_text import NONE
from voda.cli.render.tables import Column, table
from voda.cli.render.terminal import plain
from voda.text import count, counted, percent

_WIDTH: Final = 80
_HARD_SPACE: Final = "\N{NO-BREAK SPACE}"
_COMMAND: Final = re.compile("`[^`]*`")
_NODE = (
    Column(head="NODE", cut=1, least=12),
    Column(head="CARDS", right=True),
    Column(head="WHOLE FREE", right=True),
    Column(head="FREE MILLI", right=True),
    Column(head="FRAGMENT", right=True),
    Column(head="OF FREE", right=True),
)
_KIND = (
    Column(head="ASKS FOR", cut=1, least=12),
    Column(head="PODS", right=True),
    Column(head="CAN USE", right=True),
    Column(head="LOST", right=True),
    Column(head="OF FREE", right=True),
    Column(head="ROOM FOR", right=True),
)
_NO_CARDS = "no node has cards that pods may share; docs/shared-gpus.md says how nodes come to have some"
_NO_SHARES = (
    "no pod or job has compute of a card, so it cannot be said what is of no use to others like it: ask again once one"
    " has, such as by `voda submit --gpu-milli 250 -- python serve.py`"
)
_MEANING = (
    "The fragment is what is free and of no use to the next pod, on average over these kinds (FGD). Memory counts in"
    " ROOM FOR alone: how many more such pods fit."
)
_MOVE = (
    Column(head="POD", cut=1, least=12),
    Column(head="MILLI", right=True),
    Column(head="MEMORY", right=True),
    Column(head="FROM", cut=2, least=10),
    Column(head="TO", cut=2, least=10),
)
_FIGURES = (
    Column(head=""),
    Column(head="NOW", right=True),
    Column(head="AFTER", right=True),
)
_UNDER_WAY = (
    "Requested: they move one after the other. Until all have moved, or ten minutes are over, no part comes to the"
    " cards that become whole. `voda events` shows it."
)
_IN_FORCE = "A request is refused meanwhile, and what it would move cannot be said yet."
_DRY_RUN = "Nothing was requested: leave out --dry-run for that."


def fragmentation_text(pools: Sequence[FragmentationView], *, width: int | None) -> list[Text]:
    """Return nodes and kinds of each pool, line by line; of one without cards, a sentence."""
    lines = list[Text]()
    for pool in pools:
        lines += [Text()] if lines else []
        lines += _pool(pool, has_head=len(pools) > 1, width=width)
    return lines


def defragmentation_text(pools: Sequence[DefragmentationView], *, width: int | None) -> list[Text]:
    """Return the moves of each pool, line by line; of one where nothing moves, why."""
    lines = list[Text]()
    for pool in pools:
        lines += [Text()] if lines else []
        lines += _moves(pool, has_head=len(pools) > 1, width=width)
    return lines


def _pool(pool: FragmentationView, *, has_head: bool, width: int | None) -> list[Text]:
    if not pool.nodes:
        return _sentence(f"Pool {plain(pool.pool)}: {plain(pool.not_shared) or _NO_CARDS}.", width)
    head = [Text(f"Pool: {plain(pool.pool)}")] if has_head else []
    lines = [*head, *table(_NODE, _nodes(pool.nodes), width=width)]
    if closed := [plain(node.node) for node in pool.nodes if not node.is_open]:
        lines += [Text(), *_sentence(f"Nothing counts as free where no pod may come now: {', '.join(closed)}.", width)]
    if not pool.kinds:
        why = plain(pool.not_shared) or _NO_SHARES
        return [*lines, Text(), *_sentence(f"Fragment not known: {why}.", width)]
    rare = f" {_rare(pool.rare_pods)}." if pool.rare_pods else ""
    rows = [_kind(kind) for kind in pool.kinds]
    return [*lines, Text(), *table(_KIND, rows, width=width), Text(), *_sentence(_MEANING + rare, width)]


def _nodes(nodes: Sequence[NodeFragmentView]) -> list[list[str]]:
    rows = [_node(node) for node in nodes]
    if len(nodes) > 1:
        known = [node.fragment_milli for node in nodes if node.fragment_milli is not None]
        total = NodeFragmentView(
            node="total",
            is_open=True,
            cards=sum(node.cards for node in nodes),
            whole_free_cards=sum(node.whole_free_cards for node in nodes),
            free_milli=sum(node.free_milli for node in nodes),
            fragment_milli=sum(known) if known else None,
        )
        rows.append(_node(total))
    return rows


def _node(node: NodeFragmentView) -> list[str]:
    figures = (node.cards, node.whole_free_cards, node.free_milli)
    lost = node.fragment_milli
    fragment = NONE if lost is None else count(lost)
    return [plain(node.node), *(f"{figure:,}" for figure in figures), fragment, _of(lost, node.free_milli)]


def _kind(kind: KindFragmentView) -> list[str]:
    figures = (kind.pods, kind.usable_milli, kind.lost_milli)
    lost = _of(kind.lost_milli, kind.usable_milli + kind.lost_milli)
    return [_asked(kind), *(f"{figure:,}" for figure in figures), lost, f"{kind.more_pods:,}"]


def _asked(kind: KindFragmentView) -> str:
    if kind.devices:
        return counted(kind.devices, "whole card")
    parts = [f"{kind.milli:,} milli"] if kind.milli else []
    parts += [f"{kind.memory_mib:,} MiB"] if kind.memory_mib else []
    return ", ".join(parts) or NONE


def _of(lost: float | None, free: int) -> str:
    return percent(lost / free) if free and lost is not None else NONE


def _rare(pods: int) -> str:
    return f"{counted(pods, 'pod')} with rarer requests {'is' if pods == 1 else 'are'} left out"


def _sentence(text: str, width: int | None) -> list[Text]:
    """Return text in lines of at most 80 columns, with or without a terminal; no command in it is broken."""
    joined = _COMMAND.sub(lambda command: command[0].replace(" ", _HARD_SPACE), text)
    lines = wrap(joined, min(width or _WIDTH, _WIDTH), break_on_hyphens=False)
    return [Text(line.replace(_HARD_SPACE, " ")) for line in lines]


def _moves(pool: DefragmentationView, *, has_head: bool, width: int | None) -> list[Text]:
    if pool.is_under_way:
        return _sentence(f"Pool {plain(pool.pool)}: {plain(pool.note)}. {_IN_FORCE}", width)
    if not pool.moves:
        return _sentence(f"Pool {plain(pool.pool)}: nothing moves: {plain(pool.note)}.", width)
    head = [Text(f"Pool: {plain(pool.pool)}")] if has_head else []
    become = f"Become whole: {', '.join(map(_card, pool.cards))}."
    figures = [
        ["cards wholly free", f"{pool.whole_free_cards:,}", f"{pool.whole_free_cards_after:,}"],
        ["fragment, milli", _milli(pool.fragment_milli), _milli(pool.fragment_milli_after)],
    ]
    end = _sentence(_UNDER_WAY if pool.is_requested else _DRY_RUN, width)
    moves = table(_MOVE, list(map(_move, pool.moves)), width=width)
    rest = [*_sentence(become, width), Text(), *table(_FIGURES, figures, width=width), Text(), *end]
    return [*head, *moves, Text(), *rest]


def _move(move: ShareMoveView) -> list[str]:
    memory = f"{move.memory_mib:,} MiB" if move.memory_mib else NONE
    return [plain(move.pod), f"{move.milli:,}", memory, _card(move.source), _card(move.target)]


def _card(card: NodeCardView) -> str:
    return f"{plain(card.node)} card {card.card}"


def _milli(milli: float | None) -> str:
    return NONE if milli is None else count(milli)
