"""Jobs of objects that are in a cluster already: each object leads to one job, whatever it is called."""

import asyncio

import pytest

from tests.manifests import an_mpi_job
from tests.service import a_backend
from voda.auth.callers import Caller
from voda.domain.errors import InvalidInput, TooManyJobs
from voda.events.envelope import ANY_VERSION, Fact
from voda.events.types import JobCompleted, JobRegistered, JobSubmitted
from voda.log.memory import MemoryStore

ANN = Caller(user="ann", role="user")


async def test_adoption_submits_and_registers_in_one_append() -> None:
    store = MemoryStore()
    async with a_backend(store, nodes={}) as backend:
        adopted = await backend.submits.adopt(an_mpi_job(), ANN, uid="u1")
        facts = [event.data for event in await store.read(0, 10)]
    assert adopted.is_new
    assert (adopted.record.spec.job_id, adopted.record.job.uid, adopted.record.spec.user) == ("digits", "u1", "ann")
    assert [type(fact) for fact in facts] == [JobSubmitted, JobRegistered]


async def test_adoption_of_the_same_object_again_leads_to_the_same_job() -> None:
    async with a_backend(nodes={}) as backend:
        submits = backend.submits
        adopted = await asyncio.gather(*(submits.adopt(an_mpi_job(), ANN, uid="u1") for _ in range(5)))
        bob = await submits.adopt(an_mpi_job(), Caller(user="bob", role="user"), uid="u1")
        assert len(backend.journal.view.job_registry.jobs()) == 1
    assert [one.is_new for one in (*adopted, bob)] == [True, False, False, False, False, False]


async def test_adoption_by_two_replicas_at_once_leads_to_one_job() -> None:
    store = MemoryStore()
    async with a_backend(store, nodes={}) as one, a_backend(store, nodes={}) as other:
        adopted = await asyncio.gather(
            one.submits.adopt(an_mpi_job(), ANN, uid="u1"), other.submits.adopt(an_mpi_job(), ANN, uid="u1")
        )
        assert {record.record.spec.job_id for record in adopted} == {"digits"}
        assert await store.position() == 2


async def test_object_that_follows_another_of_its_name_gets_the_next_id() -> None:
    async with a_backend(nodes={}) as backend:
        submits = backend.submits
        await submits.adopt(an_mpi_job(), ANN, uid="u1")
        second = await submits.adopt(an_mpi_job(), ANN, uid="u2")
        assert second.record.spec.job_id == "digits-2"
        assert second.record.job.uid == "u2"


async def test_adoption_counts_among_the_users_jobs() -> None:
    async with a_backend(nodes={}, jobs_per_user=1) as backend:
        submits = backend.submits
        await submits.adopt(an_mpi_job(), ANN, uid="u1")
        with pytest.raises(TooManyJobs):
            await submits.adopt(an_mpi_job(), ANN, uid="u2")
        with pytest.raises(TooManyJobs):
            submits.check(an_mpi_job(), ANN)
        again = await submits.adopt(an_mpi_job(), ANN, uid="u1")
        assert not again.is_new


async def test_object_that_cannot_run_here_is_refused_and_leaves_nothing() -> None:
    async with a_backend(nodes={}) as backend:
        manifest = an_mpi_job(annotations={"voda.dev/pool": "elsewhere"})
        with pytest.raises(InvalidInput, match="no pool 'elsewhere'"):
            await backend.submits.adopt(manifest, ANN, uid="u1")
        assert await backend.journal.store.position() == 0


async def test_object_of_an_ended_job_leads_to_that_job() -> None:
    async with a_backend(nodes={}) as backend:
        submits = backend.submits
        first = await submits.adopt(an_mpi_job(), ANN, uid="u1")
        fact = Fact(data=JobCompleted(job_id="digits"), event_id="end", recorded_at=backend.journal.clock.now())
        await backend.journal.view.wait_for(await backend.journal.store.append("job.digits", ANY_VERSION, [fact]))
        assert (await submits.adopt(an_mpi_job(), ANN, uid="u1")).record is first.record


async def test_adoption_of_an_object_whose_variables_expand_too_far_is_refused_with_the_field() -> None:
    bomb = an_mpi_job(env={"A0": "x" * 100, **{f"A{link}": f"$(A{link - 1})" * 10 for link in range(1, 12)}})
    too_long = r"Launcher.*env\[4\]\.value: expected 131072 bytes or less"
    async with a_backend(nodes={}) as backend:
        submits = backend.submits
        with pytest.raises(InvalidInput, match=too_long):
            submits.check(bomb, ANN)
        with pytest.raises(InvalidInput, match=too_long):
            await submits.adopt(bomb, ANN, uid="u1")
        assert not backend.journal.view.job_registry.jobs()
