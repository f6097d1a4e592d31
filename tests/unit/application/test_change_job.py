"""Claims about changes of live jobs: bounds that the program of a job cannot have are refused."""

import pytest

from tests.builders import a_spec
from tests.service import a_backend
from voda.api.backend import Backend
from voda.application.change_job import JobPatch, change, changed_spec
from voda.auth.callers import Caller
from voda.domain.errors import InvalidField
from voda.domain.gpus import GpuRequest, Gpus
from voda.programs.launchers import Launcher
from voda.programs.program_manifest import ProgramJob, program_manifest
from voda.projections.job_record import JobRecord

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


def test_change_when_a_job_with_a_part_of_a_gpu_would_have_more_workers_is_refused() -> None:
    spec = a_spec(share=GpuRequest(milli=250), gpus_per_replica=Gpus(0))
    with pytest.raises(InvalidField, match="a part of a GPU is for one worker, got 2"):
        changed_spec(spec, JobPatch(max_replicas=2))
    assert changed_spec(spec, JobPatch(priority=3)).priority == 3
