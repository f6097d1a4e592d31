"""Lists jobs: filters them, sorts them and cuts a page.

Rule: a continue token names the last job of a page, not a number of jobs, so that no reader misses a job or sees it
twice when others come and go meanwhile.
"""

import base64
import binascii
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from operator import attrgetter
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta, Struct

from voda.application.journal import JournalView
from voda.application.lookup import array_tasks
from voda.domain.errors import InvalidField
from voda.domain.labels import matches, parse_selector
from voda.projections.jobs.record import JobRecord

MAX_PAGE: Final = 500
"""Jobs of a page."""
Key = Callable[[JobRecord], Any]
Sort = Literal[
    "submitted_at",
    "-submitted_at",
    "priority",
    "-priority",
    "name",
    "-name",
    "phase",
    "-phase",
    "replicas",
    "-replicas",
]


class PhaseFilter(StrEnum):
    """What a caller can filter by: phases, and the states that say more."""

    SUBMITTED = "Submitted"
    WAITING = "Waiting"
    RUNNING = "Running"
    COMPLETED = "Completed"
    FAILED = "Failed"
    CANCELED = "Canceled"
    LIVE = "live"
    PREEMPTED = "Preempted"
    CANCELING = "Canceling"
    HALTED = "Halted"


class JobsQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename={"after": "continue"}):
    """Which jobs, in which order, and how many."""

    pool: Annotated[tuple[str, ...], Meta(description="Jobs of these pools.")] = ()
    phase: Annotated[
        tuple[PhaseFilter, ...],
        Meta(
            description="Jobs in these phases; `live` stands for all that have not ended, `Preempted` for those that"
            " ran before and wait again, `Canceling` for those that are being canceled, `Halted` for those that wait to"
            " be resumed."
        ),
    ] = ()
    user: Annotated[str, Meta(description="Jobs of this user.")] = ""
    namespace: Annotated[str, Meta(description="Jobs of this namespace.")] = ""
    name: Annotated[str, Meta(description="Jobs of this name, live and ended.")] = ""
    selector: Annotated[
        str,
        Meta(
            max_length=2_000,
            description="Jobs with these labels, as Kubernetes writes it: team=vision,tier!=test,stage in (dev,prod),"
            "!paused.",
        ),
    ] = ""
    array: Annotated[
        str,
        Meta(
            description="Tasks of the array of that name: your own, else the one submitted last; or OWNER/NAME, or @ID."
        ),
    ] = ""
    sort: Annotated[Sort, Meta(description="Ascending, or with `-` descending; equal ones by submission.")] = (
        "submitted_at"
    )
    limit: Annotated[int, Meta(ge=1, le=MAX_PAGE, description="Most jobs of the page.")] = 100
    after: Annotated[str, Meta(max_length=1_000, description="`next` of the page before.")] = ""


class JobPage(Struct, frozen=True):
    """One page."""

    records: Sequence[JobRecord]
    total: int
    following: str | None
    """Token of the next page."""


class _PageToken(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The last job of a page: its sort key, and the position of its submission."""

    sort: str
    key: str | int
    submitted_position: int


_PHASES: Final = {phase.value: number for number, phase in enumerate(PhaseFilter)}
_KEYS: Final[dict[str, Key]] = {
    # The position of the submission: unique to each job.
    "submitted_at": attrgetter("submitted_position"),
    "priority": attrgetter("spec.priority"),
    "name": lambda record: record.spec.name or record.spec.job_id,
    "phase": lambda record: _PHASES[record.phase.value],
    "replicas": attrgetter("job.replicas"),
}


class JobPager:
    """Makes pages of the jobs in a view."""

    def __init__(self, view: JournalView) -> None:
        self._view = view
        self._at = -1
        self._records: Sequence[JobRecord] = ()
        """All jobs in the order of submission, at position `_at`."""

    def page(self, query: JobsQuery, user: str) -> JobPage:
        """Return the page that a user asks for.

        Raises InvalidField where its token is not from this API, or of another order.
        """
        matching = self._matching(query, user)
        is_descending, by = query.sort.startswith("-"), query.sort.removeprefix("-")
        key = _KEYS[by]
        if by != "submitted_at":
            # A stable sort keeps equal jobs in the order of submission, also in a descending order.
            matching = sorted(matching, key=key, reverse=is_descending)
        elif is_descending:
            matching = matching[::-1]
        begin = _behind(_decode_token(query), matching, key, is_descending) if query.after else 0
        shown = matching[begin : begin + query.limit]
        has_more = begin + query.limit < len(matching)
        return JobPage(shown, len(matching), _encode_token(query.sort, key, shown[-1]) if has_more else None)

    def _matching(self, query: JobsQuery, user: str) -> Sequence[JobRecord]:
        records = array_tasks(self._view.job_registry, query.array, user) if query.array else self._all()
        for wants in _filters(query):
            records = [record for record in records if wants(record)]
        return records

    def _all(self) -> Sequence[JobRecord]:
        if self._at != self._view.position:
            self._at, self._records = self._view.position, list(self._view.job_registry.jobs().values())
        return self._records


def _filters(query: JobsQuery) -> Iterable[Callable[[JobRecord], bool]]:
    """Yield the filters of a query, the most selective first."""
    if query.name:
        yield lambda record: (record.spec.name or record.spec.job_id) == query.name
    if query.user:
        yield lambda record: record.spec.user == query.user
    if query.phase:
        yield lambda record: any(_is_in(record, phase) for phase in query.phase)
    if query.pool:
        yield lambda record: record.spec.pool in query.pool
    if query.namespace:
        yield lambda record: record.spec.namespace == query.namespace
    if selector := parse_selector(query.selector):
        yield lambda record: matches(selector, record.spec.labels)


def _is_in(record: JobRecord, phase: PhaseFilter) -> bool:
    match phase:
        case PhaseFilter.LIVE:
            return record.is_live
        case PhaseFilter.PREEMPTED:
            return record.is_preempted
        case PhaseFilter.CANCELING:
            return record.is_live and record.is_canceling
        case PhaseFilter.HALTED:
            return record.is_halted
    return record.phase.value == phase.value


def _behind(token: _PageToken, records: Sequence[JobRecord], key: Key, is_descending: bool) -> int:
    """Return the index of the first record after the token's, which may be gone."""

    def is_behind(record: JobRecord) -> bool:
        own = key(record)
        if own == token.key:
            if key is _KEYS["submitted_at"]:
                return False
            return record.submitted_position > token.submitted_position
        return bool((own < token.key) if is_descending else (own > token.key))

    return bisect_left(records, True, key=is_behind)


def _encode_token(sort: str, key: Key, last: JobRecord) -> str:
    token = msgspec.json.encode(_PageToken(sort, key(last), last.submitted_position))
    return base64.urlsafe_b64encode(token).decode().rstrip("=")


def _decode_token(query: JobsQuery) -> _PageToken:
    text = query.after
    try:
        content = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
        token = msgspec.json.decode(content, type=_PageToken)
    except (binascii.Error, ValueError, msgspec.MsgspecError) as error:
        raise InvalidField("continue", f"continue is {text[:80]!r}, expected `next` of the page before") from error
    if token.sort != query.sort or isinstance(token.key, str) != (query.sort.removeprefix("-") == "name"):
        raise InvalidField("continue", f"continue is of a list sorted by {token.sort[:20]!r}, but sort is {query.sort}")
    return token
