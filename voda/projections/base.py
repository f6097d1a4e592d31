"""What all projections share: each event is folded by the one function that is registered for its type.

Rule: a type without a function leaves the projection as it is; folding is a dictionary look-up, however many types
there are.
"""

from collections.abc import Callable, Mapping
from inspect import get_annotations
from typing import Any, ClassVar, TypeVar, get_args

from voda.events.decisions import PlanAdopted
from voda.events.envelope import Event

Fold = TypeVar("Fold", bound=Callable[..., object])


class Projection:
    """Folds a log. `@Some.folds` registers a function of (projection, fact, event) for the type of its `fact`."""

    _folds: ClassVar[dict[type, Callable[[Any, Any, Event], object]]]

    def __init_subclass__(cls) -> None:
        cls._folds = {}

    @classmethod
    def folds(cls, fold: Fold) -> Fold:
        """Register a function for the type, or the union of types, that its parameter `fact` is annotated with."""
        fact = get_annotations(fold)["fact"]
        cls._folds.update(dict.fromkeys(get_args(fact) or (fact,), fold))
        return fold

    def apply(self, event: Event) -> None:
        """Fold one event; events must come in the order of their positions."""
        if (fold := self._folds.get(type(event.data))) is not None:
            fold(self, event.data, event)


def considered(fact: PlanAdopted, since: Mapping[str, int]) -> list[str]:
    """Return the jobs that a plan considers of those that wait for that; `since` is job id -> position of its event."""
    named = [job_id for job_id, position in since.items() if position <= fact.based_on]
    return [job_id for job_id in named if job_id in fact.placed] if fact.only_starts else named
