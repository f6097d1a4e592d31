"""Quotas: the virtual cells that virtual clusters own, and the check that the physical cells suffice for them.

A quota `rack.node x 2` yields two *quota cells* of type node, each with all virtual cells below it; a pin yields one.
Virtual cells say nothing of where: they are bound to physical cells when they are used.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from voda.cells.structure.cell_types import LEAF, Chain
from voda.cells.structure.topology import Topology
from voda.cells.structure.trees import NONE, Trees, TreesBuilder
from voda.domain.cells import VirtualClusterSpec
from voda.domain.errors import InvalidInput


@dataclass(frozen=True)
class QuotaView:
    """The virtual cells among which a gang is placed: all of one virtual cluster in a chain, or those of one pin."""

    roots: tuple[int, ...]
    """Quota cells."""
    roots_at: Mapping[int, tuple[int, ...]]
    """Level -> quota cells of it; levels that have some only."""
    nodes: tuple[int, ...]
    """Virtual machines, then the quota cells that are smaller than a machine, larger ones first."""
    size: int = 0
    """Leafs in all of them."""


@dataclass(frozen=True)
class Quotas:
    """All virtual cells, by number."""

    trees: Trees
    owner: tuple[str, ...]
    """Virtual cluster of every cell."""
    root: tuple[int, ...]
    """The quota cell that a cell is or belongs to."""
    clusters: tuple[str, ...]
    views: Mapping[tuple[str, str], QuotaView]
    """(virtual cluster, chain) -> its cells that are not pinned."""
    pin_views: Mapping[tuple[str, str], QuotaView]
    """(virtual cluster, pin) -> the pinned cell."""
    pinned: Mapping[int, int]
    """Quota cell -> the physical cell that is pinned for it."""

    @cached_property
    def names(self) -> frozenset[str]:
        """The virtual clusters."""
        return frozenset(self.clusters)

    @cached_property
    def root_types(self) -> Mapping[tuple[str, str, str], tuple[str, ...]]:
        """(virtual cluster, pin, chain) -> types of its quota cells, the smaller ones first; pin empty: not pinned."""
        levels: dict[tuple[str, str, str], dict[int, str]] = {}
        views = [(cluster, "", view) for (cluster, _), view in self.views.items()]
        views += [(cluster, pin, view) for (cluster, pin), view in self.pin_views.items()]
        for cluster, pin, view in views:
            for root in view.roots:
                chain, level = self.trees.chain[root], self.trees.level[root]
                levels.setdefault((cluster, pin, chain.name), {})[level] = chain.type_at(level).name
        return {key: tuple(of_key[level] for level in sorted(of_key)) for key, of_key in levels.items()}

    @cached_property
    def root_names(self) -> Mapping[int, str]:
        """Quota cell -> its type, and its number among those of its virtual cluster, or of its pin: `node/3`."""
        pinned = {view.roots[0]: place for place, view in self.pin_views.items()}
        names: dict[int, str] = {}
        numbers: Counter[tuple[str, str]] = Counter()
        for root in sorted(pinned.keys() | {root for view in self.views.values() for root in view.roots}):
            owner = pinned.get(root, (self.owner[root], ""))
            kind = self.trees.chain[root].type_at(self.trees.level[root])
            names[root] = f"{kind.name}/{numbers[owner]}"
            numbers[owner] += 1
        return names

    @cached_property
    def root_named(self) -> Mapping[tuple[str, str, str], int]:
        """(virtual cluster, pin, name) -> the quota cell that has it in `root_names`; pin empty: not pinned."""
        pins = {view.roots[0]: pin for (_, pin), view in self.pin_views.items()}
        return {(self.owner[root], pins.get(root, ""), name): root for root, name in self.root_names.items()}

    @cached_property
    def node_of(self) -> Mapping[int, int]:
        """Virtual leaf -> the view's node that it belongs to."""
        views = [*self.views.values(), *self.pin_views.values()]
        return {leaf: node for view in views for node in view.nodes for leaf in self.trees.leafs[node]}

    @cached_property
    def addresses(self) -> tuple[str, ...]:
        """The address of every virtual cell, as HiveD writes it: virtual cluster, number of the quota cell, indices."""
        addresses: list[str] = []
        roots: Counter[str] = Counter()
        for cell, above in enumerate(self.trees.parent):
            if above == NONE:
                owner = self.owner[cell]
                addresses.append(f"{owner}/{roots[owner]}")
                roots[owner] += 1
            else:
                addresses.append(f"{addresses[above]}/{self.trees.children[above].index(cell)}")
        return tuple(addresses)

    def count(self, cluster: str, chain: str, level: int) -> int:
        """Return how many quota cells of a level a virtual cluster has, pins included."""
        views = [self.views.get((cluster, chain)), *(v for (c, _), v in self.pin_views.items() if c == cluster)]
        return sum(
            self.trees.level[root] == level and self.trees.chain[root].name == chain
            for view in views
            if view is not None
            for root in view.roots
        )


def build_quotas(clusters: Mapping[str, VirtualClusterSpec], topology: Topology) -> Quotas:
    """Return the virtual cells of the virtual clusters; whether they fit is another question (`shortages`).

    Raises:
        InvalidInput: a quota names a chain or type that is not there, a pin is unknown or used twice.
    """
    builder = _QuotasBuilder(topology)
    for name, spec in clusters.items():
        for quota in spec.virtual_cells:
            chain, level = quota_type(name, quota.cell_type, topology)
            builder.views.setdefault((name, chain.name), [])
            for _ in range(quota.cell_number):
                builder.views[name, chain.name].append(builder.add(name, chain, level))
        for pin in spec.pinned_cells:
            builder.add_pin(name, pin.pinned_cell_id)
    return builder.quotas(tuple(clusters))


def quota_type(cluster: str, path: str, topology: Topology) -> tuple[Chain, int]:
    """Return the chain and the level of a quota's cells; raises InvalidInput where there are none of that type."""
    first, last = path.split(".")[0], path.split(".")[-1]
    chain = topology.chains.get(first)
    if chain is None:
        known = ", ".join(topology.chains) or "none"
        paths = ", ".join(
            name if name == last else f"{name}.{last}" for name, each in topology.chains.items() if last in each.levels
        )
        raise InvalidInput(
            f"virtual cluster {cluster}: quota {path} begins with {first}, and no topmost physical cell has that type"
            f" (there are: {known})" + (f"; write {paths}" if paths else "")
        )
    if last not in chain.levels:
        raise InvalidInput(
            f"virtual cluster {cluster}: quota {path} ends with {last}, expected a type of chain {first}:"
            f" {', '.join(chain.levels)}"
        )
    return chain, chain.levels[last]


@dataclass
class _QuotasBuilder:
    topology: Topology
    trees: TreesBuilder = field(default_factory=TreesBuilder)
    owner: list[str] = field(default_factory=list)
    root: list[int] = field(default_factory=list)
    views: dict[tuple[str, str], list[int]] = field(default_factory=dict)
    pin_views: dict[tuple[str, str], list[int]] = field(default_factory=dict)
    pinned: dict[int, int] = field(default_factory=dict)

    def add(self, cluster: str, chain: Chain, level: int) -> int:
        root = self.trees.add_full(chain, level)
        added = len(self.trees.parent) - root
        self.owner += [cluster] * added
        self.root += [root] * added
        return root

    def add_pin(self, cluster: str, pin: str) -> None:
        cell = self.topology.pins.get(pin)
        if cell is None:
            raise InvalidInput(f"virtual cluster {cluster}: no physical cell has pinnedCellId {pin}")
        for owner, other in self.pin_views:
            if other == pin:
                raise InvalidInput(f"pinned cell {pin} is given twice, to virtual clusters {owner} and {cluster}")
        trees = self.topology.trees
        root = self.add(cluster, trees.chain[cell], trees.level[cell])
        self.pin_views[cluster, pin] = [root]
        self.pinned[root] = cell

    def quotas(self, clusters: tuple[str, ...]) -> Quotas:
        trees = self.trees.done()
        return Quotas(
            trees,
            tuple(self.owner),
            tuple(self.root),
            clusters,
            {key: _view(trees, roots) for key, roots in self.views.items()},
            {key: _view(trees, roots) for key, roots in self.pin_views.items()},
            self.pinned,
        )


def _view(trees: Trees, roots: list[int]) -> QuotaView:
    nodes = [node for root in roots for node in _machines(trees, root)]
    smaller = [root for root in roots if trees.level[root] < trees.chain[root].node_level]
    smaller.sort(key=lambda root: -trees.level[root])
    levels = dict.fromkeys(trees.level[root] for root in roots)
    at = {level: tuple(root for root in roots if trees.level[root] == level) for level in levels}
    nodes += smaller
    return QuotaView(tuple(roots), at, tuple(nodes), sum(len(trees.leafs[node]) for node in nodes))


def _machines(trees: Trees, cell: int) -> Iterator[int]:
    """Yield the machines that a cell is or contains; none of a smaller cell."""
    if trees.level[cell] == trees.chain[cell].node_level:
        yield cell
    elif trees.level[cell] > max(trees.chain[cell].node_level, LEAF):
        for child in trees.children[cell]:
            yield from _machines(trees, child)
