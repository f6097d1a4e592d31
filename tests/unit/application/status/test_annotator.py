"""What a job's object says is written while nobody else writes to it."""

from tests.kube.client import MPIJOBS, Object
from tests.kube.memory_api import Wire
from tests.kube.memory_server import Change
from tests.kube.memory_world import POOL, MemoryWorld
from tests.kube.objects import an_mpijob
from tests.kube.operators.mpi_v2 import MpiOperatorV2
from tests.virtual_time import now_s, virtually

QUIET_S = 1.0


async def states_written() -> list[tuple[str, float]]:
    """Run a job, and return what its object was made to say, with how long it had been at rest before."""
    written: list[tuple[str, float]] = []
    async with MemoryWorld(1, [MpiOperatorV2]) as world:
        last, note = [("", 0.0)], world.server.on_change

        def see(change: Change) -> None:
            note(change)
            if change.resource == MPIJOBS:
                state, (before, at) = state_of(change.object), last[0]
                if state != before:
                    written.append((state, now_s() - at))
                last[0] = state, now_s()

        world.server.on_change = see
        await world.add_node("n1", 2, POOL)
        async with world.replica(Wire(1, longest_s=0.02)):
            await world.submit(an_mpijob("a", world.namespace, least=2, most=2, pool=POOL))
            await world.until(lambda: last[0][0] == "Running 2/2")
    return written


def state_of(job: Object) -> str:
    return str(job["metadata"].get("annotations", {}).get("voda.dev/state", ""))


def test_object_is_annotated_only_once_its_operator_has_come_to_rest() -> None:
    written = virtually(states_written())
    assert written[-1][0] == "Running 2/2"
    assert [(state, rest_s) for state, rest_s in written if rest_s < QUIET_S] == []
