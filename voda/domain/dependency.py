"""Dependencies between jobs: a job that begins only after another one, or a whole array, has ended.

Rules: a dependency names jobs that exist, and a task that joins an array later is refused where it would wait for its
own array, itself or by way of others: so there are no cycles. Once a dependency is met it stays met.
"""

from collections.abc import Sequence
from typing import Final, Literal, cast, get_args

from msgspec import Struct

from voda.domain.errors import InvalidInput

Condition = Literal["ok", "any"]
MOST_DEPENDENCIES: Final = 100
"""Of one job."""
_MOST_LETTERS: Final = 200
_CONDITIONS: Final = get_args(Condition)


class DependencyRequest(Struct, frozen=True):
    """A dependency as a user writes it: `train`, `train:ok` or `sweep:any`."""

    name: str
    """Of a job or an array, or its id."""
    condition: Condition = "ok"

    @property
    def text(self) -> str:
        return self.name if self.condition == "ok" else f"{self.name}:{self.condition}"


class Dependency(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a job waits for."""

    job_id: str
    """Of the other job; of an array, its id."""
    owner: str = ""
    """Of the other job, where it is not the submitter's own or others have one of that name too."""
    array: str = ""
    """Name of the array, all of whose tasks have to end; empty: it is a single job."""
    condition: Condition = "ok"
    """ok: it has to complete; any: it has to end, however."""
    is_met: bool = False
    """Whether it was met when the job was submitted."""

    @property
    def key(self) -> str:
        """The name under which its end is noted: a job and an array may have the same id."""
        return f"array {self.job_id}" if self.array else self.job_id

    @property
    def target(self) -> str:
        """What it waits for, in words, as a user may name it."""
        name = f"{self.owner}{'/' if self.owner else ''}{self.array or self.job_id}"
        return f"array {name}" if self.array else name


def parse_dependencies(text: str) -> Sequence[DependencyRequest]:
    """Return the dependencies of `prep:any,train`, each once; raises InvalidInput."""
    found = [_parsed(part.strip()) for part in text.split(",") if part.strip()]
    if len(found) > MOST_DEPENDENCIES:
        raise InvalidInput(f"expected up to {MOST_DEPENDENCIES} jobs, got {len(found)}")
    return tuple(dict.fromkeys(found))


def _parsed(part: str) -> DependencyRequest:
    name, colon, condition = part.partition(":")
    if not name or len(part) > _MOST_LETTERS or (colon and condition not in _CONDITIONS):
        raise InvalidInput(f"expected the name of a job, and perhaps :ok or :any after it, got {part[:60]!r}")
    return DependencyRequest(name, cast(Condition, condition or "ok"))
