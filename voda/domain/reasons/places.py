"""Why workers are where they are."""

from voda.domain.reasons.base import ReasonPart


class Moved(ReasonPart, frozen=True, kw_only=True):
    """Its workers go to other nodes, at the cost of a restart; whole seconds of its own time."""

    cost_s: int
    saved_s: int = 0
    """By being together on one node; 0: it was before, or still is not."""
    room_for: str = ""
    """The job that has come to a node that it left; empty: none."""


class Spans(ReasonPart, frozen=True, kw_only=True):
    """Its workers are on so many nodes."""

    nodes: int
    cost_s: int = 0
    """Whole seconds by which it ends later so."""
    move_s: int = 0
    """That it costs to bring it together once it is at work."""
    fits: bool = True
    """Whether a node would hold all of them, were it empty."""


PlaceCause = Moved | Spans
