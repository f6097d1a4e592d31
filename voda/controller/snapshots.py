"""Saves the states of projections, so that whoever follows the log begins from there (`follower`)."""

from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import NamedTuple

from voda.controller.follower import Restorable
from voda.log.store import EventStore, Snapshot


class DumpedState(NamedTuple):
    """The whole state of a projection at a position."""

    name: str
    """See `Restorable.FORMAT`."""
    position: int
    state: bytes
    state_hash: str


def dump_states(projections: Iterable[Restorable], position: int) -> Sequence[DumpedState]:
    """Return the states of projections that are at `position`; for a thread, while nothing changes them."""
    states = [(projection.FORMAT, projection.dump()) for projection in projections]
    return [DumpedState(name, position, state, sha256(state).hexdigest()) for name, state in states]


async def save_snapshots(store: EventStore, states: Iterable[DumpedState]) -> Sequence[Snapshot]:
    """Save states of projections, with the head of every stream."""
    # Read once: a log with many jobs has many heads.
    heads = await store.heads()
    snapshots = [Snapshot(**dumped._asdict(), heads=heads) for dumped in states]
    for snapshot in snapshots:
        await store.snapshots.save(snapshot)
    return snapshots


async def take_snapshots(store: EventStore, projections: Iterable[Restorable], position: int) -> Sequence[Snapshot]:
    """Save the states of projections that are at `position` and that nothing changes meanwhile."""
    return await save_snapshots(store, dump_states(projections, position))
