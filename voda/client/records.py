"""What the client returns beyond the records of voda.wire: a list of jobs, which notebooks show as a table."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol, overload

from voda.wire.jobs import JobView, html_table


class HasJobId(Protocol):
    """A job, or what else names one."""

    @property
    def job_id(self) -> str: ...


class Jobs(Sequence[JobView]):
    """A list of jobs; notebooks show it as a table."""

    def __init__(self, items: Iterable[JobView], *, total: int | None = None) -> None:
        self._items = tuple(items)
        self.total = len(self._items) if total is None else total
        """Of all that match on the server."""

    @overload
    def __getitem__(self, index: int) -> JobView: ...
    @overload
    def __getitem__(self, index: slice) -> "Jobs": ...
    def __getitem__(self, index: int | slice) -> "JobView | Jobs":
        found = self._items[index]
        return Jobs(found) if isinstance(found, tuple) else found

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[JobView]:
        return iter(self._items)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Jobs) and self._items == other._items

    def __hash__(self) -> int:
        return hash(tuple(job.job_id for job in self._items))

    def __repr__(self) -> str:
        return f"Jobs({', '.join(f'{job.job_id} {job.phase}' for job in self._items)})"

    def _repr_html_(self) -> str:
        return html_table(self._items)
