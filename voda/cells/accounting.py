"""Accounts: what every virtual cluster has of its quota, as lists, metrics and explanations show it. Only reads."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from voda.cells.book import CellBook
from voda.cells.gangs import OPPORTUNISTIC


@dataclass(frozen=True, order=True)
class QuotaKey:
    """What a quota is of."""

    virtual_cluster: str
    chain: str
    cell_type: str
    pin: str = ""
    """Empty: not pinned."""


@dataclass(frozen=True)
class QuotaUse:
    """How a quota is used."""

    cells: int
    in_use: int = 0
    """Cells of which a guaranteed gang uses or has reserved some leafs."""
    doomed: int = 0
    """Cells that stand on bad hardware; what runs there goes on."""
    leafs: int = 0
    used_leafs: int = 0
    """Leafs that guaranteed gangs use or have reserved; the others are lent to whoever gains by them."""


def quota_use(book: CellBook) -> Mapping[QuotaKey, QuotaUse]:
    """Return how every quota is used, by virtual cluster, chain, type and pin."""
    uses: dict[QuotaKey, QuotaUse] = {}
    for key, root in sorted(_roots(book)):
        before, leafs, used = uses.get(key, QuotaUse(0)), len(book.quotas.trees.leafs[root]), book.used[root]
        uses[key] = QuotaUse(
            before.cells + 1,
            before.in_use + (used > 0),
            before.doomed + book.is_bad_binding(root),
            before.leafs + leafs,
            before.used_leafs + used,
        )
    return uses


def borrowed_leafs(book: CellBook) -> Mapping[tuple[str, str], int]:
    """Return (virtual cluster, chain) -> leafs that its gangs use without a guarantee; gangs of none are left out."""
    borrowed: Counter[tuple[str, str]] = Counter()
    for gang in book.gangs.values():
        for leaf in gang.leafs if gang.request.virtual_cluster else ():
            if book.priority[leaf] == OPPORTUNISTIC:
                borrowed[gang.request.virtual_cluster, book.topology.trees.chain[leaf].name] += 1
    return dict(sorted(borrowed.items()))


def _roots(book: CellBook) -> list[tuple[QuotaKey, int]]:
    """Return every quota cell with what it is of."""
    trees, quotas = book.quotas.trees, book.quotas
    views = [(cluster, "", view) for (cluster, _), view in quotas.views.items()]
    views += [(cluster, pin, view) for (cluster, pin), view in quotas.pin_views.items()]
    return [
        (QuotaKey(cluster, trees.chain[root].name, trees.chain[root].type_at(trees.level[root]).name, pin), root)
        for cluster, pin, view in views
        for root in view.roots
    ]
