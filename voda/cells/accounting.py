"""Accounts: what every virtual cluster has of its quota, and what another configuration would change.

`quota_use` is what lists, metrics and explanations show; `compare` is what a dry run prints. Both only read.
"""

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


@dataclass(frozen=True)
class ConfigurationChanges:
    """What another configuration changes."""

    quotas: Mapping[QuotaKey, tuple[int, int]]
    """Cells before and after, where they differ."""
    downgraded: tuple[str, ...]
    """Gangs that lose their guarantee and go on."""
    regained: tuple[str, ...]
    """Gangs that have their guarantee again."""
    uncounted: Mapping[str, int]
    """Gang -> leafs of it that are there no longer."""
    withdrawn: tuple[str, ...]
    """Gangs whose reservation ends; they ask again."""

    @property
    def breaks_guarantees(self) -> bool:
        """Whether running gangs lose anything."""
        return bool(self.downgraded or self.uncounted)


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


def compare(before: CellBook, after: CellBook) -> ConfigurationChanges:
    """Return what a reconfiguration from one book to the other changes."""
    old, new = _cells(before), _cells(after)
    both = [(before.gangs[name], gang) for name, gang in after.gangs.items() if name in before.gangs]
    lost = {then.name: len(then.leafs) - len(now.leafs) for then, now in both if len(now.leafs) < len(then.leafs)}
    return ConfigurationChanges(
        quotas={key: (old[key], new[key]) for key in sorted(old.keys() | new.keys()) if old[key] != new[key]},
        downgraded=tuple(now.name for then, now in both if now.downgraded_by and not then.downgraded_by),
        regained=tuple(now.name for then, now in both if then.downgraded_by and not now.downgraded_by),
        uncounted=lost,
        withdrawn=tuple(name for name, gang in before.gangs.items() if gang.is_waiting),
    )


def _cells(book: CellBook) -> Counter[QuotaKey]:
    return Counter(key for key, _ in _roots(book))


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
