"""The ids of new jobs and arrays, and of the jobs that they come after.

Rules: a name belongs to one live job or array at a time; an id belongs to one job for ever, and is no name of another
as long as the job is remembered. The id of an array is that of the task that was submitted first; a task that comes by
itself joins its user's array as long as that awaits it.
"""

from bisect import bisect_left
from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from voda.application import dependencies
from voda.application.journal import JournalView
from voda.domain.errors import AlreadyExists
from voda.domain.job import JobSpec, validated
from voda.manifests.parse import ParsedManifest
from voda.projections.jobs.names import full_name
from voda.projections.jobs.registry import JobRegistry


class JobIds(Struct, frozen=True):
    """Gives out ids by what the log says."""

    view: JournalView

    @property
    def registry(self) -> JobRegistry:
        return self.view.job_registry

    def identified(
        self, specs: Sequence[JobSpec], parsed: ParsedManifest, *, may_share_name: bool = False
    ) -> Sequence[JobSpec]:
        """Return the jobs of one manifest, at least one, with free ids, and those of the jobs that they come after.

        Raises:
            AlreadyExists: a live job or array has one of the names.
            InvalidField: a job that they come after does not exist, did not complete, or waits for their own array.
        """
        namespace = specs[0].namespace
        if not may_share_name:
            self._refuse_taken_names(specs, parsed.spec.name)
        after = dependencies.resolve(parsed.after, self.view, namespace, specs[0].user)
        found = [
            validated(replace(spec, job_id=self._free(full_name(namespace, spec.name)), after=after)) for spec in specs
        ]
        array_id = self._array_id(found)
        tasks = [replace(spec, array=spec.array and replace(spec.array, array_id=array_id)) for spec in found]
        if (task := tasks[0].array) is not None and array_id != tasks[0].job_id:
            dependencies.refuse_circular(task, after, self.view)
        return tasks

    def _array_id(self, specs: Sequence[JobSpec]) -> str:
        """Return the id of the array of these jobs: a single task joins its user's array that awaits it."""
        spec, arrays = specs[0], self.registry.arrays
        if len(specs) > 1 or (task := spec.array) is None:
            return spec.job_id
        array_id = arrays.latest_of(full_name(spec.namespace, task.name), spec.user)
        array = self.view.cluster.array(array_id) if array_id is not None else None
        if array_id is None or array is None or not array.awaits(task.index):
            return spec.job_id
        others = (other.spec.array for other in arrays.tasks(array_id))
        is_same = any(other and (other.indices, other.at_once) == (task.indices, task.at_once) for other in others)
        return array_id if is_same else spec.job_id

    def _refuse_taken_names(self, specs: Sequence[JobSpec], name: str) -> None:
        """Raise AlreadyExists where a live job or array has the name of one of these jobs, or that of their array.

        So it does where a run of another name has it as its id: the text would mean two jobs.
        """
        namespace = specs[0].namespace
        for one in dict.fromkeys([name, *(spec.name for spec in specs)]):
            if (run := self.registry.run_with_id(full_name(namespace, one))) is not None:
                raise AlreadyExists(f"{one} is the id of a run of {run.spec.name}: choose another name")
            if (live := self.registry.live_named(namespace, one)) is not None:
                raise AlreadyExists(self._taken_by(live, one, specs[0].user))
        if self.registry.arrays.live(full_name(namespace, name)) is not None:
            raise AlreadyExists(
                f"array {name} is live: delete it or wait for its end, or choose another name than {name!r}"
            )

    def _taken_by(self, job_id: str, name: str, user: str) -> str:
        record = self.registry.job(job_id)
        owner = record.spec.user if record is not None else user
        if owner and owner != user:
            return f"{owner} has a live job named {name!r}: wait for its end, or choose another name"
        return f"job {job_id} has the name {name!r} and is live: delete it or wait for its end, or choose another name"

    def _free(self, base: str) -> str:
        """Return the base, else the base with a number, that no job has had; O(log n) lookups."""
        is_known = self.registry.is_known
        if not is_known(base):
            return base
        free = 2
        while is_known(f"{base}-{free}"):
            free *= 2
        numbers = range(free // 2 + 1, free)
        first = bisect_left(numbers, True, key=lambda number: not is_known(f"{base}-{number}"))
        return f"{base}-{numbers.start + first}"
