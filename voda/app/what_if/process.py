"""The process of one what-if: gets a question, says how far it is and what came of it.

Rule: it only reads the log.
"""

import asyncio
from collections.abc import Callable
from typing import Final

import msgspec
from msgspec import Struct

from voda.api.what_ifs import WhatIfAnswer, WhatIfQuestion
from voda.app.side_process import ProcessBounds, begin, reply
from voda.controller.follower import catch_up
from voda.domain.errors import VodaError
from voda.log.factory import open_store
from voda.log.store import EventStore
from voda.simulator.whatif.what_if import AlternativePolicy, simulate_instead
from voda.timetravel.activity import Activity
from voda.wire.base import instant
from voda.wire.what_ifs import SeriesView

_STRETCHES: Final = 300
_BOUNDS: Final = ProcessBounds(niceness=15, memory_bytes=4 * 1024**3, cpu_s=900)


class Asked(Struct, frozen=True, kw_only=True):
    log: str
    """Path or URL."""
    question: WhatIfQuestion


class Told(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One message to the service."""

    progress: float = 0.0
    step: str = ""
    answer: WhatIfAnswer | None = None
    error: str = ""


async def answer(asked: Asked, said: Callable[[float, str], None]) -> WhatIfAnswer:
    """Return the answer to a question; `said` is told how far it is, 0 to 1, and what is being done."""
    question = asked.question
    choice = AlternativePolicy(
        policy=question.policy, placer=question.placer or None, fair_share=question.fair_share or None
    )
    store = await open_store(asked.log, read_only=True)
    try:
        found = await simulate_instead(store, question.position, choice, pool=question.pool, said=said)
        said(0.95, "drawing both runs")
        recorded, other = await _activity(store), await _activity(found.store)
    finally:
        await store.close()
    until = max(recorded.known_until, other.known_until)
    since = min(found.comparison.at.timestamp(), until)
    return WhatIfAnswer(
        comparison=found.comparison, recorded=_series(recorded, since, until), what_if=_series(other, since, until)
    )


async def _activity(store: EventStore) -> Activity:
    activity = Activity()
    await catch_up(store, [activity], after=0)
    return activity


def _series(activity: Activity, since: float, until: float) -> SeriesView:
    row = activity.between(since, max(until, since + 1.0), _STRETCHES)
    levels = {name: tuple(column.round(3).tolist()) for name, column in row._asdict().items()}
    return SeriesView(
        since=instant(since),
        until=instant(until),
        **{name: levels[name] for name in SeriesView.__struct_fields__ if name in levels},
    )


def _tell(told: Told) -> None:
    reply(msgspec.json.encode(told))


def main() -> None:
    """Answer one question."""
    asked = msgspec.json.decode(begin(_BOUNDS)(), type=Asked)
    try:
        _tell(Told(answer=asyncio.run(answer(asked, lambda part, step: _tell(Told(progress=part, step=step))))))
    except VodaError as error:
        _tell(Told(error=str(error)))
    except MemoryError:
        _tell(Told(error="it takes more memory than it may have: begin at a later moment"))


if __name__ == "__main__":
    main()
