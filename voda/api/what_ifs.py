"""What-ifs that users ask of a running voda: what another policy would have decided from a moment on.

Rule: each is simulated outside of the service, one after the other; who asked sees it, and admins do.
"""

from typing import Literal, Protocol

from msgspec import Struct

from voda.auth.callers import Caller
from voda.domain.errors import NotAllowed, NotFound
from voda.wire.what_ifs import ComparisonView, SeriesView

WhatIfState = Literal["waiting", "running", "done", "failed"]


class WhatIfQuestion(Struct, frozen=True, kw_only=True):
    """From which position of the log on what decides in a pool."""

    position: int
    pool: str
    policy: str
    placer: str = ""
    """Empty: as recorded, as for `fair_share`."""
    fair_share: str = ""


class WhatIfAnswer(Struct, frozen=True, kw_only=True):
    """What the simulation came to."""

    comparison: ComparisonView
    recorded: SeriesView
    what_if: SeriesView


class AskedWhatIf(Struct, frozen=True, kw_only=True):
    """A question, and how far its answer is."""

    what_if_id: str
    user: str
    question: WhatIfQuestion
    state: WhatIfState = "waiting"
    progress: float = 0.0
    """From 0 to 1, by the steps of the work."""
    step: str = ""
    """What is being done."""
    answer: WhatIfAnswer | None = None
    error: str = ""
    """Why it failed, one sentence."""


class WhatIfs(Protocol):
    """The what-ifs of one server."""

    def ask(self, question: WhatIfQuestion, caller: Caller) -> AskedWhatIf:
        """Have a question answered; raises TooManyRequests where the caller, or all, wait for too many."""

    def get(self, what_if_id: str, caller: Caller) -> AskedWhatIf:
        """Return a question of the caller's as it is now; raises NotFound."""

    def drop(self, what_if_id: str, caller: Caller) -> None:
        """End and forget a question of the caller's; raises NotFound."""


class NoWhatIfs:
    """Of a server that simulates nothing."""

    def ask(self, question: WhatIfQuestion, caller: Caller) -> AskedWhatIf:
        raise NotAllowed("this server simulates nothing: `voda replay --what-if` does, on a copy of the log")

    def get(self, what_if_id: str, caller: Caller) -> AskedWhatIf:
        raise NotFound(f"there is no what-if {what_if_id[:80]!r}")

    def drop(self, what_if_id: str, caller: Caller) -> None:
        raise NotFound(f"there is no what-if {what_if_id[:80]!r}")
