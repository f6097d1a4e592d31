"""Arrays and what jobs come after, read from the log without any of voda's own projections.

Rules: the tasks of an array are submitted together, each once; plans never let more of them have workers at once than
its bound says, those included that have ended and still have workers; no plan holds a job before all that it comes
after has ended as it should.
"""

from collections.abc import Sequence

from tests.dst.invariants.broken import Broken
from tests.dst.invariants.plans import Plans
from voda.domain.dependency import Dependency
from voda.domain.job import JobSpec
from voda.domain.job_array import ArrayTask
from voda.events.envelope import Event
from voda.events.types import JobCanceled, JobCompleted, JobFailed, JobSubmitted, PlanAdopted


class Arrays:
    """Reads the log as it grows, each append after `plans` has read it."""

    def __init__(self, plans: Plans) -> None:
        self._plans = plans
        self._tasks: dict[str, dict[int, str]] = {}
        """Array -> index -> job."""
        self._arrays: dict[str, ArrayTask] = {}
        """Array -> one of its tasks, which knows its bound."""
        self._completed: dict[str, bool] = {}
        """Job that has ended -> whether it completed."""

    def see(self, events: Sequence[Event]) -> None:
        """Take in what was appended at once.

        Raises:
            Broken: an array is torn, too many of its tasks are at work, or a job does not wait.
        """
        for event in events:
            match event.data:
                case JobSubmitted(spec=spec) if spec.array is not None:
                    self._submit(spec, spec.array)
                case JobCompleted() | JobFailed() | JobCanceled():
                    self._completed.setdefault(event.data.job_id, isinstance(event.data, JobCompleted))
                case PlanAdopted():
                    self._adopt(event.data)
        for event in events:
            if isinstance(event.data, JobSubmitted) and (task := event.data.spec.array) is not None:
                self._refuse_torn(task)

    def _submit(self, spec: JobSpec, task: ArrayTask) -> None:
        self._arrays[task.array_id] = task
        tasks = self._tasks.setdefault(task.array_id, {})
        if (first := tasks.setdefault(task.index, spec.job_id)) != spec.job_id:
            raise Broken("arrays", f"task {task.index} of array {task.array_id} is job {first} and job {spec.job_id}")

    def _refuse_torn(self, task: ArrayTask) -> None:
        if (submitted := len(self._tasks[task.array_id])) != task.count:
            raise Broken("arrays", f"array {task.array_id} of {task.count} tasks was submitted as {submitted}")

    def _adopt(self, plan: PlanAdopted) -> None:
        which = f"plan {plan.number} of pool {plan.pool}"
        for job_id in self._plans.placements[plan.pool]:
            for dependency in self._plans.specs[job_id].after:
                if (why := self._open(dependency, plan.based_on)) is not None:
                    raise Broken("after", f"{which} holds job {job_id}, which comes after {dependency.target}: {why}")
        for array_id, tasks in self._tasks.items():
            at_once = self._arrays[array_id].at_once
            at_work = [job_id for job_id in tasks.values() if self._is_at_work(job_id, plan)]
            if at_once and len(at_work) > at_once:
                what = f"{which} lets {', '.join(at_work)} be at work, at most {at_once} of array {array_id} may be"
                raise Broken("at once", what)

    def _is_at_work(self, job_id: str, plan: PlanAdopted) -> bool:
        return job_id in self._plans.placements[plan.pool] or bool(self._plans.workers_at(job_id, plan.based_on))

    def _open(self, dependency: Dependency, position: int) -> str | None:
        """Return what of a dependency is not as it should be at a position; None where all is."""
        others = self._tasks.get(dependency.job_id, {}).values() if dependency.array else [dependency.job_id]
        for job_id in others:
            if self._plans.ends.get(job_id, position + 1) > position:
                return f"{job_id} had not ended"
            if dependency.condition == "ok" and not self._completed[job_id]:
                return f"{job_id} did not complete"
        return None
