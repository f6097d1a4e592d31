"""Pages of jobs while jobs come, end and are forgotten."""

import pytest

from tests.builders import Log, a_spec
from voda.api.job_listing import JobPager, JobsQuery
from voda.application.read_model import ReadModel
from voda.domain.errors import InvalidField
from voda.events.types import AnyFact, JobCompleted, JobSubmitted, WorkerStarted
from voda.log.memory import MemoryStore
from voda.projections.jobs.registry import JobRegistry


class Scene:
    """A view that forgets all but one ended job, and the log it follows."""

    def __init__(self) -> None:
        self.view = ReadModel(MemoryStore())
        self.view.job_registry = JobRegistry(most_ended=1)
        self.listing = JobPager(self.view)
        self._log = Log()

    def happens(self, *facts: AnyFact) -> None:
        """Fold facts."""
        for fact in facts:
            event = self._log.add(fact, at=0.0)
            self.view.live.apply(event)
            self.view.job_registry.apply(event)

    def submits(self, *names: str, priority: int = 0) -> None:
        """Fold submissions."""
        self.happens(*[JobSubmitted(spec=a_spec(name, priority=priority)) for name in names])

    def page(self, after: str | None = None, *, sort: str = "submitted_at") -> tuple[list[str], str | None]:
        """Return the names of a page of two, and the token of the next."""
        query = JobsQuery(limit=2, sort=sort, after=after or "")  # type: ignore[arg-type]
        found = self.listing.page(query, "anna")
        return [record.spec.job_id for record in found.records], found.following


def test_page_when_the_last_job_shown_was_forgotten_goes_on_behind_it() -> None:
    scene = Scene()
    scene.submits("a", "b", "c", "d")
    names, following = scene.page()
    assert names == ["a", "b"]
    scene.happens(JobCompleted(job_id="b"), JobCompleted(job_id="a"))
    assert scene.view.job_registry.job("b") is None
    assert scene.page(following) == (["c", "d"], None)


def test_page_when_descending_does_not_show_what_came_meanwhile() -> None:
    scene = Scene()
    scene.submits("a", "b", "c", "d")
    names, following = scene.page(sort="-submitted_at")
    assert names == ["d", "c"]
    scene.submits("e")
    assert scene.page(following, sort="-submitted_at") == (["b", "a"], None)


@pytest.mark.parametrize("sort", ["priority", "-priority"])
def test_page_when_jobs_are_equal_goes_by_submission(sort: str) -> None:
    scene = Scene()
    scene.submits("a", "b", "c", priority=5)
    names, following = scene.page(sort=sort)
    assert names == ["a", "b"]
    assert scene.page(following, sort=sort) == (["c"], None)


def test_page_when_sorted_by_what_is_observed_is_as_of_now() -> None:
    scene = Scene()
    scene.submits("a", "b")
    assert scene.page(sort="-replicas")[0] == ["a", "b"]
    scene.happens(WorkerStarted(job_id="b", workers={0: "n1"}))
    assert scene.page(sort="-replicas")[0] == ["b", "a"]


def test_page_when_the_token_is_of_another_order_is_refused() -> None:
    scene = Scene()
    scene.submits("a", "b", "c")
    _, following = scene.page()
    with pytest.raises(InvalidField, match="sorted by 'submitted_at'"):
        scene.page(following, sort="name")
