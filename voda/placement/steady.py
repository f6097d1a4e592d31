"""Steady: starts from the placement in force and changes as little as the goals of `base` allow.

Rules: a job begins to span nodes only while no node has room for it whole; a job that spans is brought together
when the time this saves outweighs the move; others move for a job only where it could not start otherwise; what hosts
a rendezvous stays as long as its node has room for it; placing again with the answer in force gives the same answer.
"""

from collections.abc import Mapping
from typing import ClassVar

from msgspec.structs import replace

from voda.domain.plan import Placement
from voda.domain.state import ClusterState
from voda.placement.defragment import squeezed_in
from voda.placement.order import by_size
from voda.placement.partial_placement import Draft
from voda.placement.rendezvous_anchor import is_uprooted


class Steady:
    """Keeps workers where they are; best fit for what starts or grows."""

    name: ClassVar[str] = "steady"
    title: ClassVar[str] = "keeps workers where they are, and brings a spanning job together when that pays"

    def place(self, view: ClusterState, replicas: Mapping[str, int], now: float) -> Placement:
        """See Placer.place."""
        placed = _settled(view, replicas)
        while (roomier := _with_one_more(view, replicas, placed)) is not None:
            placed = roomier
        return placed


def _settled(view: ClusterState, replicas: Mapping[str, int]) -> Placement:
    draft = Draft(view, replicas)
    # Bringing a job together makes room elsewhere: go on until nothing fits any better. Each round places more
    # workers or ends a span, so the rounds end.
    while draft.serve_short() or draft.consolidate():
        pass
    return draft.placed


def _with_one_more(view: ClusterState, replicas: Mapping[str, int], placed: Placement) -> Placement | None:
    """Return a placement in which one more job starts and nobody has less; None if no job is helped so.

    Only jobs with several GPUs per worker need it: free GPUs in all, but too few on any node.
    """
    shut_out = [job_id for job_id, count in replicas.items() if count > 0 and job_id not in placed]
    for job_id in by_size(view, shut_out, replicas):
        in_the_way = squeezed_in(view, placed, job_id)
        if in_the_way is None:
            continue
        # The nodes are overfull now: settling moves the smaller workers elsewhere, if there is room.
        roomier = _settled(replace(view, plan=replace(view.plan, placement=in_the_way)), replicas)
        if all(
            len(roomier.get(other, ())) >= len(nodes) and not is_uprooted(view, other, roomier[other])
            for other, nodes in in_the_way.items()
        ):
            return roomier
    return None
