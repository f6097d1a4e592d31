"""Claims about changes of live jobs: bounds that the program of a job cannot have are refused."""

import pytest

from tests.builders import a_spec
from tests.manifests import an_mpi_job
from tests.service import a_backend
from voda.api.backend import Backend
from voda.application.change_job import JobPatch, change, changed_spec
from voda.auth.callers import Caller
from voda.domain.errors import InvalidField
from voda.domain.gpus import GpuRequest, Gpus
from voda.domain.job import validated
from voda.domain.sizes import JobSizes
from voda.events.event_text import job_change_text
from voda.events.types import JobChanged
from voda.log.memory import MemoryStore
from voda.programs.launchers import Launcher
from voda.programs.program_manifest import ProgramJob, program_manifest
from voda.projections.jobs.record import JobRecord
from voda.projections.jobs.requests import respecified

ANN = Caller(user="ann", role="user")


async def submitted(backend: Backend, launcher: Launcher, image: str = "") -> JobRecord:
    job = ProgramJob(name="train", words=("python", "train.py"), launcher=launcher, image=image)
    return (await backend.submits.submit(program_manifest(job), ANN)).record


@pytest.mark.parametrize("image", ["", "train:1"])
async def test_change_when_a_plain_program_would_have_more_workers_is_refused(image: str) -> None:
    async with a_backend(nodes={}) as backend:
        record = await submitted(backend, "plain", image)
        refusal = "^max_replicas: job train runs a plain program, which has one worker, not 4: submitted with"
        with pytest.raises(InvalidField, match=refusal):
            await change(backend.journal, record, JobPatch(max_replicas=4), ANN)
        assert (record.spec.max_replicas, backend.journal.view.position) == (1, record.revision)


async def test_change_when_a_plain_program_keeps_its_worker_is_recorded() -> None:
    async with a_backend(nodes={}) as backend:
        record = await submitted(backend, "plain")
        await change(backend.journal, record, JobPatch(min_replicas=1, max_replicas=1, priority=3), ANN)
        assert record.spec.priority == 3


@pytest.mark.parametrize("launcher", ["mpirun", "torchrun"])
async def test_change_when_a_launcher_starts_the_program_has_more_workers(launcher: Launcher) -> None:
    async with a_backend(nodes={}) as backend:
        record = await submitted(backend, launcher)
        await change(backend.journal, record, JobPatch(max_replicas=4), ANN)
        assert record.spec.max_replicas == 4


OTHERWISE = "expected one of these (or new sizes, such as 1-4:1)"
POWERS = a_spec(max_replicas=8, sizes=JobSizes.of([1, 2, 4, 8]))


@pytest.mark.parametrize(
    ("patch", "sentence"),
    [
        (JobPatch(max_replicas=6), f"max_replicas: job a can run with 1,2,4,8 workers: {OTHERWISE}, got 6"),
        (JobPatch(min_replicas=3), f"min_replicas: job a can run with 1,2,4,8 workers: {OTHERWISE}, got 3"),
        (
            JobPatch(requested_replicas=5),
            f"requested_replicas: job a can run with 1,2,4,8 workers: {OTHERWISE}, got 5",
        ),
        (JobPatch(sizes="1,4,2"), "sizes: expected sizes in ascending order, each once, got 2 after 4"),
        (
            JobPatch(sizes="2,4", min_replicas=1),
            f"min_replicas: job a can run with 2,4 workers: {OTHERWISE}, got 1",
        ),
    ],
)
def test_change_when_a_job_does_not_run_with_so_many_workers_says_with_which(patch: JobPatch, sentence: str) -> None:
    with pytest.raises(InvalidField) as refused:
        changed_spec(POWERS, patch)
    assert str(refused.value) == sentence


@pytest.mark.parametrize(
    ("patch", "least", "requested", "most", "sizes"),
    [
        (JobPatch(min_replicas=2, max_replicas=4), 2, 2, 4, "1,2,4,8"),
        (JobPatch(sizes="3-9:3"), 3, 3, 9, "3-9:3"),
        (JobPatch(sizes="2-12:2", max_replicas=8, requested_replicas=6), 2, 6, 8, "2-12:2"),
        (JobPatch(sizes="2-6"), 2, 2, 6, None),
    ],
)
async def test_change_of_sizes_when_recorded_is_what_the_log_says(
    patch: JobPatch, least: int, requested: int, most: int, sizes: str | None
) -> None:
    store = MemoryStore()
    async with a_backend(store, nodes={}) as backend:
        manifest = an_mpi_job(replicas=1, annotations={"voda.dev/sizes": "1,2,4,8"})
        record = (await backend.submits.submit(manifest, ANN)).record
        changed = await change(backend.journal, record, patch, ANN)
        spec = changed.spec
        assert (spec.min_replicas, spec.requested, spec.max_replicas) == (least, requested, most)
        assert (None if spec.sizes is None else str(spec.sizes)) == sizes
        assert validated(spec) == spec
        facts = [event.data for event in await store.read(0, 100)]
        assert [fact.by for fact in facts if isinstance(fact, JobChanged)] == ["ann"]


def test_change_when_the_job_has_other_sizes_by_then_changes_nothing() -> None:
    fact = JobChanged(job_id="a", max_replicas=6)
    assert respecified(POWERS, fact) == POWERS
    assert job_change_text(JobChanged(job_id="a", sizes=POWERS.sizes)) == "sizes = 1,2,4,8"


def test_change_when_a_job_with_a_part_of_a_gpu_would_have_more_workers_is_refused() -> None:
    spec = a_spec(share=GpuRequest(milli=250), gpus_per_replica=Gpus(0))
    with pytest.raises(InvalidField, match="a part of a GPU is for one worker, got 2"):
        changed_spec(spec, JobPatch(max_replicas=2))
    assert changed_spec(spec, JobPatch(priority=3)).priority == 3
