"""What is known of all jobs and categories, and which of it an estimate starts from.

A category is a user's: what jobs of others report under its name counts where the user's reported nothing, for anybody
may use the name, unless `share_measurements` says that users trust each other.
"""

from collections.abc import Iterator, Mapping
from typing import Final, TypeVar

import msgspec

from voda.changed_keys import ChangedKeys
from voda.domain.job import JobSpec
from voda.domain.settings import Settings
from voda.events.message_pack import append_map
from voda.projections.learning.categories import OF_USER, Categories, CategoryMeasurements, user_of
from voda.projections.learning.estimates import Evidence
from voda.projections.learning.measurements import JobMeasurements
from voda.projections.learning.scaling import CategoryHistory, Scaling, Sizes, estimate_scaling

_ARRAY_OF_TWO: Final = b"\x92"

Measurements = TypeVar("Measurements", JobMeasurements, CategoryMeasurements)
Stamps = tuple[int, int, int]
_State = tuple[dict[str, JobMeasurements], dict[str, CategoryMeasurements]]


class Knowledge:
    """Measurements of live jobs and of categories; changed in place."""

    def __init__(self, categories: Categories | None = None) -> None:
        self.jobs: dict[str, JobMeasurements] = {}
        self.categories = categories or Categories()
        self.members: dict[str, set[str]] = {}
        """Category -> its live jobs."""
        self.changed_jobs, self.changed_categories = ChangedKeys(), ChangedKeys()
        """Those whose measurements settle anew."""
        self.reported = ChangedKeys()
        """Jobs of which a report was taken in."""
        self._histories: dict[tuple[str, bool], CategoryHistory] = {}
        """By category, and whether of samples."""

    def dump(self) -> bytes:
        buffer = bytearray(_ARRAY_OF_TWO)
        append_map(buffer, _ordered(dict(sorted(self.jobs.items()))))
        append_map(buffer, _ordered(self.categories.dump()))
        return bytes(buffer)

    def load(self, state: bytes) -> None:
        """Take over what `dump` returned."""
        self.jobs, categories = msgspec.msgpack.decode(state, type=_State)
        self.categories.load(categories)
        self.members = {}
        self.changed_jobs, self.changed_categories, self.reported = ChangedKeys(), ChangedKeys(), ChangedKeys()
        self._histories = {}
        for job_id, own in self.jobs.items():
            self._join(job_id, own)

    @property
    def stamps(self) -> Stamps:
        """Changes of jobs and of categories so far, and reports."""
        return self.changed_jobs.count, self.changed_categories.count, self.reported.count

    def is_current(self, job_id: str, stamps: Stamps) -> bool:
        """Return whether neither a live job nor its categories have settled anew since then; O(1)."""
        jobs, categories, _ = stamps
        return not self.changed_jobs.has_changed(job_id, jobs) and not any(
            self.changed_categories.has_changed(key, categories) for key in self.jobs[job_id].categories
        )

    def changed_since(self, stamps: Stamps) -> Iterator[str]:
        """Yield the live jobs whose estimates may have changed since then, some of them twice."""
        changed_jobs, changed_categories = self.changed_jobs.since(stamps[0]), self.changed_categories.since(stamps[1])
        reported = self.reported.since(stamps[2])
        yield from self.jobs if changed_jobs is None or reported is None else (*changed_jobs, *reported)
        for key in self.members if changed_categories is None else changed_categories:
            yield from self.members.get(key, ())

    def add(self, job_id: str, own: JobMeasurements) -> None:
        """Add a job that was submitted."""
        self.jobs[job_id] = own
        self._join(job_id, own)

    def drop(self, job_id: str) -> JobMeasurements | None:
        """Remove a job that has ended, and return its measurements."""
        if (own := self.jobs.pop(job_id, None)) is not None:
            for key in own.categories:
                members = self.members[key]
                members.discard(job_id)
                if not members:
                    del self.members[key]
                    if key not in self.categories:
                        self.settle(key)
        return own

    def use(self, key: str, own: JobMeasurements) -> CategoryMeasurements:
        """Return the measurements of a job's category, the one used last now; others may be forgotten for it."""
        used = self.categories.use(key, user_of(own.categories[0]))
        for gone in self.categories.surplus(key):
            self.settle(gone)
        return used

    def settle(self, key: str) -> None:
        """Take note that the measurements of a category have settled anew; O(1)."""
        for in_samples in (False, True):
            self._histories.pop((key, in_samples), None)
        self.changed_categories.add(key)

    def history(self, key: str, *, in_samples: bool) -> CategoryHistory:
        """Return how the jobs of a category scale, from seconds of a sample or of an epoch."""
        if (history := self._histories.get((key, in_samples))) is None:
            measurements = self.categories.get(key) or CategoryMeasurements()
            history = CategoryHistory(measurements.samples if in_samples else measurements.epochs)
            if key in self.categories or key in self.members:
                self._histories[key, in_samples] = history
        return history

    def scaling(self, evidence: Evidence, sizes: Sizes) -> Scaling:
        """Return how a job scales."""
        history = self.history(evidence.key, in_samples=evidence.in_samples)
        if (own := evidence.own) is None:
            return history.scaling(sizes)
        return estimate_scaling(own.samples if evidence.in_samples else own.epochs, history, sizes)

    def evidence(self, own: JobMeasurements | None, spec: JobSpec, settings: Settings | None) -> Evidence:
        """Return what an estimate starts from: the first of its categories that has measurements."""
        keys = sources(own, spec, settings)
        known = ((key, one) for key in keys if (one := self.categories.get(key)) and (one.epochs or one.samples))
        key, category = next(known, (keys[-1], None))
        if own is not None and bool(own.epochs) != bool(own.samples):
            # As it reports itself, unless no epoch of its kind is known in samples.
            has_work = own.work.count or (category is not None and category.work.epochs)
            in_samples = bool(own.samples) and bool(has_work or category is None or not category.epochs)
        else:
            in_samples = category is not None and bool(category.work.epochs or not category.epochs)
        return Evidence(own, key, category, in_samples)

    def _join(self, job_id: str, own: JobMeasurements) -> None:
        for key in own.categories:
            self.members.setdefault(key, set()).add(job_id)


def keys_of(spec: JobSpec) -> tuple[str, ...]:
    """Return the keys of the user's own category and of that of all users; one where nobody is named."""
    category = spec.history_category
    return (f"{spec.user}{OF_USER}{category}", category) if spec.user else (category,)


def sources(own: JobMeasurements | None, spec: JobSpec, settings: Settings | None) -> tuple[str, ...]:
    """Return the keys of the categories that an estimate starts from; the first that has measurements counts."""
    keys = own.categories if own is not None else keys_of(spec)
    return keys[-1:] if settings is not None and settings.share_measurements else keys


def _ordered(measurements: Mapping[str, Measurements]) -> Mapping[str, Measurements]:
    """Return the entries in the order of their keys inside: it has no meaning and must not change the bytes."""
    return {name: one.ordered() for name, one in measurements.items()}
