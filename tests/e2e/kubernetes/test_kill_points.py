"""The leader killed between every pair of steps: no job is lost, none runs twice, nothing is left behind.

One story takes voda through all it does. A replica dies before or after each step of it, the next one takes over, may
die at a later step, and the story has to end as it always does.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path

import aiohttp
import pytest

from tests.e2e.kubernetes.replica import Replica
from tests.e2e.kubernetes.service import refuse_unverified
from tests.kube import client as api
from tests.kube.objects import a_node, an_mpijob
from tests.kube.world import World
from voda.domain.errors import StoreUnavailable
from voda.events.types import JobCanceled, JobCompleted, JobSubmitted, WorkerExited, WorkerStarted
from voda.log.factory import open_log

STEPS = (
    "append leader.elected",
    "append settings",
    "append node.joined",
    "append job.submitted",
    "append job.registered",
    "append plan.adopted",
    "append worker.started",
    "append worker.exited",
    "append node.changed",
    "append job.completed",
    "append job.canceled",
    "create mpijobs",
    "patch pods",
    "patch mpijobs",
    "delete mpijobs",
    "delete pods",
)
CHAINS: list[tuple[str, ...]] = [
    *(
        tuple(f"{when} {step} 1" for step in steps)
        for when in ("before", "after")
        for steps in (
            (
                "append leader.elected",
                "append node.joined",
                "append job.submitted",
                "create mpijobs",
                "append job.canceled",
            ),
            ("append job.registered", "append plan.adopted", "append worker.exited", "delete mpijobs"),
            ("patch mpijobs", "append worker.started", "append node.changed", "append job.completed"),
            ("append job.submitted", "patch pods", "delete pods"),
        )
    ),
    # In the midst of several of a kind: of a start's gates, of a job's patches, of the plans of the story.
    ("after patch pods 2", "after append worker.exited 2"),
    ("before patch mpijobs 2", "before append worker.started 2"),
    ("after patch mpijobs 2", "after append plan.adopted 2"),
    ("before patch mpijobs 3", "after append plan.adopted 3"),
    ("after patch mpijobs 3",),
    ("before patch mpijobs 4",),
]
"""Where one replica dies after the other, each counting its own steps; in the order of the story."""
_MORTAL = str(Path(__file__).with_name("mortal.py"))
_LEADER = {"leaseSeconds": 2.0, "renewSeconds": 1.5, "retrySeconds": 0.2}


class Play:
    """The story, with replicas that die one after the other and a last one that does not."""

    def __init__(self, world: World, folder: Path, fates: Sequence[str], trace: Path | None = None) -> None:
        self.world = world
        self.folder = folder
        self.log = folder / "voda.db"
        self.deaths = 0
        self._fates = fates
        self._trace = str(trace) if trace is not None else ""
        self.replica = self._start()

    def _start(self) -> Replica:
        fate = self._fates[self.deaths] if self.deaths < len(self._fates) else ""
        return Replica(
            self.world,
            self.folder / f"replica-{self.deaths}",
            str(self.log),
            program=(_MORTAL,),
            environment={"MORTAL": fate, "MORTAL_TRACE": self._trace},
            settings={"leader": {"namespace": self.world.namespace, **_LEADER}},
        )

    async def until(self, holds: Callable[[], Awaitable[object]]) -> None:
        """Wait until something holds, with a new replica where the old one died."""

        async def lives_and_holds() -> object:
            if self.replica.is_over():
                assert self.replica.process.returncode == 137, self.replica.text
                self.deaths += 1
                assert self.deaths <= len(self._fates), "this replica is not mortal"
                self.replica = self._start()
            return await holds()

        try:
            await self.world.until_it_is(lives_and_holds)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{await self._told()}\n{self.replica.text[-3000:]}") from None

    async def runs(self, name: str, workers: int) -> None:
        """Wait until a job runs with so many workers, and nothing of it is on its way out."""

        async def running() -> bool:
            pods = await self.world.workers_of(name)
            return len(pods) == len(await self.world.running_workers(name)) == workers

        await self.until(running)

    async def ask(self, method: str, path: str, body: object = None, key: str = "") -> None:
        """Ask the API of whichever replica lives, until it answers."""

        async def asked() -> bool:
            if not self.replica.url:
                return False
            try:
                async with (
                    aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(5.0)) as session,
                    session.request(
                        method,
                        self.replica.url + path,
                        json=body,
                        headers={"Idempotency-Key": key} if key else {},
                    ) as answer,
                ):
                    return answer.status < 300
            except (aiohttp.ClientError, TimeoutError):
                return False

        await self.until(asked)

    async def _told(self) -> str:
        store = await open_log(self.log)
        try:
            return "\n".join(f"{event.position} {event.data}"[:300] for event in await store.read(0, 10_000))
        except StoreUnavailable as error:
            return str(error)
        finally:
            await store.close()


async def tell(play: Play) -> None:
    """Tell the story: start, share, move, lose a worker, cancel, complete."""
    world, ns = play.world, play.world.namespace
    await world.add_nodes(a_node("gpu-1", 2), a_node("gpu-2", 2))
    await world.submit(an_mpijob("a", ns, least=1, most=4))
    await play.runs("a", 4)
    await play.ask("POST", "/api/v1/jobs", an_mpijob("b", ns, workers=2, least=2, most=2), key="b")
    await play.runs("b", 2)
    await play.runs("a", 2)
    first = (await world.workers_of("b"))[0]["spec"]["nodeName"]
    await world.give_to_pool(first, "a100")
    await play.until(lambda: is_left(world, first))
    await world.give_to_pool(first, "v100")
    await play.runs("a", 2)
    await play.runs("b", 2)
    await world.kubelet.evict(ns, "a-worker-0")
    await play.until(lambda: has_exited(play, f"{ns}_a", 0, "evicted"))
    await play.runs("a", 2)
    await play.ask("DELETE", f"/api/v1/jobs/{ns}_b")
    await play.until(lambda: is_gone(world, "b"))
    await play.runs("a", 4)
    await world.end_launcher("a")
    await play.until(lambda: has_ended(play, f"{ns}_a"))
    await play.until(lambda: has_ended(play, f"{ns}_b"))
    # Whatever is still on its way gets there, and nothing comes after it.
    await play.until(lambda: is_empty(world))


async def check(play: Play) -> None:
    """Prove that nothing was lost and nothing doubled."""
    ns = play.world.namespace
    store = await open_log(play.log)
    facts = [event.data for event in await store.read(0, 100_000)]
    await store.close()
    submitted = Counter(fact.spec.job_id for fact in facts if isinstance(fact, JobSubmitted))
    assert submitted == {f"{ns}_a": 1, f"{ns}_b": 1}
    assert [fact.job_id for fact in facts if isinstance(fact, JobCompleted)] == [f"{ns}_a"]
    assert [fact.job_id for fact in facts if isinstance(fact, JobCanceled)] == [f"{ns}_b"]
    assert not doubled(facts)
    objects = await play.world.client.list(api.MPIJOBS, ns)
    assert [job["metadata"]["name"] for job in objects] == ["a"]
    await refuse_unverified(play.log)


def doubled(facts: Sequence[object]) -> list[str]:
    """Return workers that the log has starting twice without an end in between."""
    at_work: dict[tuple[str, int], str] = {}
    found: list[str] = []
    for fact in facts:
        if isinstance(fact, WorkerStarted):
            for index, node in fact.workers.items():
                if at_work.get((fact.job_id, index), node) != node:
                    found.append(f"{fact.job_id} {index} on {node}")
                at_work[fact.job_id, index] = node
        elif isinstance(fact, WorkerExited):
            for index in fact.workers:
                at_work.pop((fact.job_id, index), None)
    return found


async def is_left(world: World, node: str) -> bool:
    pods = [*await world.workers_of("a"), *await world.workers_of("b")]
    return all(pod["spec"].get("nodeName") != node for pod in pods) and bool(pods)


async def has_exited(play: Play, job_id: str, index: int, cause: str) -> bool:
    store = await open_log(play.log)
    facts = [event.data for event in await store.read(0, 100_000)]
    await store.close()
    exits = [fact for fact in facts if isinstance(fact, WorkerExited) and fact.job_id == job_id]
    return any(index in fact.workers and fact.cause == cause for fact in exits)


async def has_ended(play: Play, job_id: str) -> bool:
    store = await open_log(play.log)
    facts = [event.data for event in await store.read(0, 100_000)]
    await store.close()
    return any(isinstance(fact, JobCompleted | JobCanceled) and fact.job_id == job_id for fact in facts)


async def is_gone(world: World, name: str) -> bool:
    found = await world.client.find(api.MPIJOBS, name, world.namespace)
    return found is None and not await world.workers_of(name)


async def is_empty(world: World) -> bool:
    return not await world.running_workers("a") and not await world.running_workers("b")


@pytest.fixture
def plays() -> Iterator[list[Play]]:
    """Plays whose replicas are ended with the test."""
    made: list[Play] = []
    yield made
    for play in made:
        play.replica.kill()


async def test_story_when_nobody_dies_comes_to_every_step(world: World, tmp_path: Path, plays: list[Play]) -> None:
    trace = tmp_path / "trace"
    plays.append(Play(world, tmp_path, (), trace))
    await tell(plays[0])
    await check(plays[0])
    counted = Counter(trace.read_text().splitlines())
    points = {point.partition(" ")[2].rpartition(" ")[::2] for chain in CHAINS for point in chain}
    assert [step for step, count in points if counted[step] < int(count)] == []
    left_out = counted.keys() - {step for step, _ in points}
    # Signs of life, what is told to users, and hints to kubelets: nothing depends on them. What launchers take of a
    # node is told now and then: in a story that is told quickly, never.
    signs = {"create leases", "patch leases", "create events", "patch pods"}
    signs |= {"append job.cancel_requested", "append node.room_changed"}
    kinds = ("append settings", "append policy", "append ratelimit")
    assert left_out - signs == {step for step in left_out if step.startswith(kinds)}


@pytest.mark.parametrize("chain", CHAINS, ids=", ".join)
async def test_leader_when_killed_there_is_replaced_and_no_job_is_lost_or_doubled(
    world: World, tmp_path: Path, plays: list[Play], chain: Sequence[str]
) -> None:
    plays.append(Play(world, tmp_path, chain))
    await tell(plays[0])
    assert plays[0].deaths == len(chain)
    await check(plays[0])
