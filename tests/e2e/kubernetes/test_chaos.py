"""Everything at once, at random: users, hands, nodes and replicas that die; what comes of it is as it always has to be.

The same seed does the same things, though never at the very same moments: what fails prints the seed, what was done
and the log. `pytest --chaos 8` runs eight seeds, some two minutes each.
"""

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from tests.e2e.kubernetes.monkey import Monkey
from tests.e2e.kubernetes.service import refuse_unverified
from tests.e2e.kubernetes.submissions import Submission
from tests.kube import client as api
from tests.kube.client import Object
from tests.kube.world import DEADLINE_S, World
from voda.application.submit_job import adoption_id
from voda.cluster.kubernetes import well_known
from voda.domain.errors import StoreUnavailable
from voda.domain.job import Phase
from voda.events.envelope import Event
from voda.events.types import JobCanceled, JobCompleted, JobFailed, JobSubmitted
from voda.log.factory import open_log
from voda.operator.status.job_states import state_of
from voda.projections.cluster.live_cluster import LiveCluster
from voda.projections.jobs.record import JobRecord
from voda.projections.jobs.record_text import explanation_text
from voda.projections.jobs.registry import JobRegistry

_POOL = "v100"
_STEPS = 60
_CALM_S = DEADLINE_S


@pytest.fixture
def monkeys() -> Iterator[list[Monkey]]:
    """Monkeys whose replicas are ended with the test."""
    made: list[Monkey] = []
    yield made
    for monkey in made:
        monkey.end()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run with the seeds 1 to what --chaos says."""
    if "seed" in metafunc.fixturenames:
        metafunc.parametrize("seed", range(1, 1 + metafunc.config.getoption("--chaos")))


@pytest.mark.slow
async def test_jobs_when_everything_happens_at_random_are_neither_lost_nor_doubled(
    world: World, tmp_path: Path, log: str, monkeys: list[Monkey], seed: int
) -> None:
    monkey = Monkey(world, tmp_path, log, seed)
    monkeys.append(monkey)
    try:
        await misbehave(monkey)
        await settle(monkey)
        await check(monkey)
    except AssertionError as error:
        raise AssertionError(f"seed {seed}: {error}\n{await told(monkey)}") from None


async def misbehave(monkey: Monkey) -> None:
    """Let the monkey loose."""
    await monkey.begin()
    looking = asyncio.create_task(monkey.look())
    try:
        for step in range(_STEPS):
            if step == _STEPS // 2:
                await monkey.restart_api_server()
            await monkey.act()
        await monkey.calm()
    finally:
        looking.cancel()
        with suppress(asyncio.CancelledError):
            await looking


async def settle(monkey: Monkey) -> None:
    """Wait until all is as the log has it."""
    wrong: list[str] = ["nobody has looked yet"]

    async def is_calm() -> bool:
        await monkey.tend()
        with suppress(StoreUnavailable):
            wrong[:] = await differences(monkey)
        return not wrong

    try:
        await monkey.world.until_it_is(is_calm, within_s=_CALM_S)
    except AssertionError as error:
        raise AssertionError(f"{'; '.join(wrong)}\n{error}") from None


async def differences(monkey: Monkey) -> list[str]:
    """Return in what submissions, log and cluster differ."""
    job_registry, live = JobRegistry(), LiveCluster()
    for event in await events_of(monkey.log):
        job_registry.apply(event)
        live.apply(event)
    objects = await _objects(monkey.world)
    found = [
        *(told for submission in monkey.submissions if (told := _unfulfilled(submission, job_registry))),
        *_orphans(objects, job_registry),
    ]
    pods = await monkey.world.client.list(api.PODS, monkey.world.namespace)
    shown = await monkey.world.client.list(api.JOB_STATES, monkey.world.namespace)
    states = {each["metadata"]["ownerReferences"][0]["uid"]: each for each in shown}
    for job_id, job in live.jobs(_POOL).items():
        record = job_registry.job(job_id)
        assert record is not None, job_id
        planned = live.plan(_POOL).placement.get(job_id, ())
        if dict(enumerate(planned)) != job.workers or not planned:
            found.append(f"{job_id} has {job.workers} of {planned}")
        if job.uid not in objects:
            found.append(f"{job_id} has no object {job.uid}")
        else:
            found += _unlike(objects[job.uid], states.get(job.uid, {}), record, pods)
    return found


def _unfulfilled(submission: Submission, job_registry: JobRegistry) -> str:
    """Return what is wrong about what became of a job; empty if nothing is."""
    job_id = submission.job_id or job_registry.submission(adoption_id(submission.uid))
    record = job_registry.job(job_id) if job_id else None
    if submission.is_unwanted:
        is_over = record is None or not record.is_live
        return "" if is_over else f"{submission} is live"
    if submission.is_doubtful and (record is None or record.phase is Phase.CANCELED):
        return ""
    if record is None:
        return f"{submission} was lost"
    if submission.job_id and record.phase is Phase.FAILED and "is not the job's" in explanation_text(record):
        # Somebody was faster with an object of that name, by kubectl.
        return ""
    expected = (Phase.COMPLETED,) if submission.ends else (Phase.RUNNING, Phase.COMPLETED)
    return (
        ""
        if record.phase in expected
        else f"{submission} is {record.phase}: {explanation_text(record)} {record.last_error}"
    )


def _orphans(objects: Mapping[str, Object], job_registry: JobRegistry) -> Iterator[str]:
    known = {record.job.uid for record in job_registry.jobs().values() if record.phase is not Phase.CANCELED}
    for uid, found in objects.items():
        if uid not in known:
            yield f"{found['metadata']['name']} {uid} is no job's: {found['metadata'].get('annotations')}"


def _unlike(found: Object, state: Object, record: JobRecord, pods: Sequence[Object]) -> Iterator[str]:
    """Yield in what an object and its pods differ from a live job."""
    meta, spec = found["metadata"], found["spec"]
    notes = meta.get("annotations", {})
    if notes.get(well_known.JOB_ID) != record.spec.job_id or state.get("state") != state_of(record):
        yield f"{record.spec.job_id} is {state_of(record)}, its object says {notes}, its JobState {state}"
    specs = spec.get("mpiReplicaSpecs") or spec["pytorchReplicaSpecs"]
    if specs["Worker"]["replicas"] != len(record.planned) or spec.get("runPolicy", {}).get("suspend"):
        yield f"{record.spec.job_id} is to have {len(record.planned)}, its object has {specs['Worker']['replicas']}"
    job_id = well_known.JOB_ID
    workers = [pod for pod in pods if pod["metadata"].get("annotations", {}).get(job_id) == record.spec.job_id]
    there = Counter(pod["spec"].get("nodeName") for pod in workers if pod["status"].get("phase") == "Running")
    if there != Counter(record.planned) or len(workers) != len(record.planned):
        yield f"{record.spec.job_id} is to be on {record.planned}, its workers are on {there} of {len(workers)}"


async def check(monkey: Monkey) -> None:
    """Prove from the log that nothing was doubled and no node ever overfull."""
    events = await events_of(monkey.log)
    submitted = Counter(event.data.spec.job_id for event in events if isinstance(event.data, JobSubmitted))
    assert [job_id for job_id, times in submitted.items() if times > 1] == []
    ended = Counter(
        event.data.job_id for event in events if isinstance(event.data, JobCompleted | JobFailed | JobCanceled)
    )
    assert [job_id for job_id, times in ended.items() if times > 1] == []
    wished = [submission.job_id or adoption_id(submission.uid) for submission in monkey.submissions]
    assert len(submitted) <= len(set(wished)) == len(wished)
    assert overfull(events) == []
    assert monkey.overfull == []
    await refuse_unverified(monkey.log)


def overfull(events: Sequence[Event]) -> list[str]:
    """Return after which events a node of the log had more workers than GPUs."""
    live, found = LiveCluster(), []
    for event in events:
        live.apply(event)
        held = Counter[str]()
        for job in live.jobs(_POOL).values():
            for node in job.workers.values():
                held[node] += job.spec.gpus_per_replica
        nodes = live.nodes(_POOL)
        found += [
            f"{event.position}: {node} has {gpus} of {nodes[node].gpus}"
            for node, gpus in held.items()
            if node in nodes and gpus > nodes[node].gpus
        ]
    return found


async def events_of(log: str) -> Sequence[Event]:
    """Return the whole log."""
    store = await open_log(log)
    try:
        return await store.read(0, 1_000_000)
    finally:
        await store.close()


async def _objects(world: World) -> Mapping[str, Object]:
    found = [
        *await world.client.list(api.MPIJOBS, world.namespace),
        *await world.client.list(api.PYTORCHJOBS, world.namespace),
    ]
    return {each["metadata"]["uid"]: each for each in found}


async def told(monkey: Monkey) -> str:
    """Return what was done, what the log has and what the replicas said, for whoever has to find out."""
    try:
        events = [
            f"{event.position} {event.recorded_at:.3f} {event.data}"[:300] for event in await events_of(monkey.log)
        ]
    except StoreUnavailable as error:
        events = [str(error)]
    said = [f"--- {replica.folder.name}\n{replica.text[-3000:]}" for replica in monkey.replicas]
    return "\n".join(["--- done", *monkey.diary, "--- log", *events, *said])
