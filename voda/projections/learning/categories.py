"""What was measured of each category of jobs, and which of them are forgotten where there are too many."""

from collections.abc import Iterator, Mapping
from typing import Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from voda.projections.learning.epoch_work import EpochWork
from voda.projections.learning.means import EpochMeans, LogSpread, RunningMean
from voda.projections.learning.restarts import RestartCosts

MOST_CATEGORIES_OF_USER: Final = 1_000
MOST_CATEGORIES: Final = 20_000
_RECENT_ENDS: Final = 32
OF_USER: Final = "\n"
"""Between user and category in a key: no category holds it."""


class CategoryMeasurements(Struct, kw_only=True):
    """What jobs of one category reported."""

    epochs: EpochMeans = msgspec.field(default_factory=EpochMeans)
    """Seconds of an epoch."""
    samples: EpochMeans = msgspec.field(default_factory=EpochMeans)
    """Seconds of a sample, of jobs that report their throughput."""
    work: EpochWork = msgspec.field(default_factory=EpochWork)
    lengths: LogSpread = msgspec.field(default_factory=LogSpread)
    """How long the epochs of jobs that have completed are, relative to the mean."""
    ends: list[int] = []
    """Epochs of the last jobs that have completed, the newest at the end."""
    restarts: RestartCosts = msgspec.field(default_factory=RestartCosts)
    error: RunningMean = msgspec.field(default_factory=RunningMean)
    brought_by: str = ""
    """Of a category of all users: the user whose job it began with; empty: nobody is named."""

    def end(self, epochs: int) -> bool:
        """Take in that a job has completed after so many epochs, and return whether that says something new."""
        before, self.ends = self.ends, [*self.ends, epochs][-_RECENT_ENDS:]
        return {*before} != {epochs} and sorted(before) != sorted(self.ends)

    def ordered(self) -> "CategoryMeasurements":
        """Return the same measurements, smallest sizes and first epochs first, for a dump."""
        return replace(self, epochs=self.epochs.ordered(), samples=self.samples.ordered(), work=self.work.ordered())


def user_of(key: str) -> str:
    """Return the user whose category a key means; empty for that of all users."""
    user, of_user, _ = key.partition(OF_USER)
    return user if of_user else ""


class Categories:
    """What was measured of each category, by its key: its name for that of all users, with a user before it for theirs.

    Where there are too many, those used longest ago are forgotten: of a user who has more than one may, else of whoever
    has most, where those of all users count as one user's. So nobody's own are forgotten for another's. Of those of all
    users, as many may have begun with one user; who brings more loses their own, so that nobody empties the rest.
    """

    def __init__(self, most_of_user: int = MOST_CATEGORIES_OF_USER, most: int = MOST_CATEGORIES) -> None:
        self._most_of_user = most_of_user
        self._most = most
        self._of: dict[str, dict[str, CategoryMeasurements]] = {}
        """User, empty for all users -> key -> measurements, those used last at the end."""
        self._brought: dict[str, dict[str, None]] = {}
        """User -> categories of all users that they brought, those used last at the end."""
        self._count = 0

    def __contains__(self, key: str) -> bool:
        return self.get(key) is not None

    def get(self, key: str) -> CategoryMeasurements | None:
        return self._of.get(user_of(key), {}).get(key)

    def use(self, key: str, user: str) -> CategoryMeasurements:
        """Return the measurements of a category for a user's job to change; from now on it is the one used last."""
        own = self._of.setdefault(user_of(key), {})
        if (found := own.pop(key, None)) is None:
            found = CategoryMeasurements(brought_by="" if user_of(key) else user)
            self._count += 1
        own[key] = found
        if found.brought_by:
            brought = self._brought.setdefault(found.brought_by, {})
            brought.pop(key, None)
            brought[key] = None
        return found

    def surplus(self, key: str) -> Iterator[str]:
        """Forget what is too much now that a category is used, and yield the keys."""
        user = user_of(key)
        of_one = self._of[user] if user else self._brought.get(self._of[user][key].brought_by, {})
        while (has_too_many := len(of_one) > self._most_of_user) or self._count > self._most:
            # Whatever the order in which users came: a snapshot does not keep it.
            most = max(self._of.items(), key=lambda each: (len(each[1]), each[0]))[1]
            oldest = next(iter(of_one if has_too_many else most))
            self._forget(oldest)
            yield oldest

    def of_all_users(self) -> Mapping[str, CategoryMeasurements]:
        """Return the categories of all users by name, read-only."""
        return self._of.get("", {})

    def dump(self) -> Mapping[str, CategoryMeasurements]:
        """Return all, users sorted, and of each those used last at the end: that order is part of the state."""
        return {key: one for _, own in sorted(self._of.items()) for key, one in own.items()}

    def load(self, state: Mapping[str, CategoryMeasurements]) -> None:
        """Take over what `dump` returned."""
        self._of, self._brought, self._count = {}, {}, len(state)
        for key, one in state.items():
            self._of.setdefault(user_of(key), {})[key] = one
            if one.brought_by:
                self._brought.setdefault(one.brought_by, {})[key] = None

    def _forget(self, key: str) -> None:
        own = self._of[user_of(key)]
        gone = own.pop(key)
        if not own:
            del self._of[user_of(key)]
        self._count -= 1
        if gone.brought_by:
            brought = self._brought[gone.brought_by]
            del brought[key]
            if not brought:
                del self._brought[gone.brought_by]
