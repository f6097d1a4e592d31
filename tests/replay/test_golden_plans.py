"""Stored logs, decided on again: the plans of today against the golden ones, and recorded ones that were altered.

The logs were made by `voda simulate -w tests/replay/logs/jobs.csv --nodes 2x4 --ratelimit 5 --seed 3`, all but those of
elastic-fifo and tiresias with `--node-mtbf 4000 --node-repair 200`; they are never made again. The golden plans are
rewritten by `pytest --update-golden`, and a change of theirs needs a sentence in the commit.
"""

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from tests.builders import a_spec
from voda.domain.errors import InvalidInput
from voda.domain.gpus import Gpus
from voda.domain.reasons.outcomes import Waits
from voda.events.envelope import Event, Fact
from voda.events.types import AnyFact, JobQueueLevelChanged, JobSubmitted, PlanAdopted, SettingsChanged
from voda.log.factory import open_log
from voda.log.memory import MemoryStore
from voda.log.store import EventStore
from voda.policies import POLICIES
from voda.timetravel.verify import Verification, plans_again, verify

LOGS = Path(__file__).parent / "logs"


async def rewritten(log: EventStore, change: Callable[[Event], AnyFact]) -> MemoryStore:
    """Return the log with other facts in it, sealed as if they had been recorded like this."""
    store = MemoryStore()
    for event in await log.read(0, 10_000):
        fact = Fact(data=change(event), event_id=event.event_id, recorded_at=event.recorded_at, actor=event.actor)
        await store.append(event.stream, event.version - 1, [fact], epoch=event.epoch)
    return store


async def decided_today(name: str) -> MemoryStore:
    """Return a stored log with the reasons of today; its plans are the same."""
    log = await open_log(LOGS / name)
    plans = {event.position: plan async for event, plan in plans_again(log) if plan is not None}

    def reasons_of_today(event: Event) -> AnyFact:
        fact = event.data
        return replace(fact, reasons=plans[event.position].reasons) if isinstance(fact, PlanAdopted) else fact

    return await rewritten(log, reasons_of_today)


@pytest.mark.parametrize("name", POLICIES)
async def test_plans_when_decided_again_are_the_golden_ones(name: str, update_golden: bool) -> None:
    store = await open_log(LOGS / name)
    lines = [
        msgspec.json.encode({"position": event.position, "plan": plan}, order="sorted").decode()
        async for event, plan in plans_again(store)
    ]
    golden = LOGS / f"{name}.plan.jsonl"
    if update_golden:
        golden.write_text("\n".join(lines) + "\n", encoding="utf-8")
    assert lines == golden.read_text(encoding="utf-8").splitlines()


async def test_verify_when_a_plan_was_altered_names_it_and_its_job() -> None:
    def move(event: Event) -> AnyFact:
        fact = event.data
        if isinstance(fact, PlanAdopted) and fact.number == 3:
            return replace(fact, placed={**fact.placed, "alpha-2": ("node-02", "node-02")})
        return fact

    altered = await rewritten(await decided_today("elastic-fifo"), move)
    found = await verify(altered)
    assert found.difference is not None
    assert (found.difference.position, found.difference.job_id, found.difference.what) == (13, "alpha-2", "placement")
    assert found.difference.recorded == "node-02, node-02"
    assert found.difference.recomputed == "node-01, node-01"
    assert found.decisions == 2


async def test_verify_when_only_a_reason_was_altered_names_the_job() -> None:
    def excuse(event: Event) -> AnyFact:
        fact = event.data
        if isinstance(fact, PlanAdopted) and fact.number == 5:
            return replace(fact, reasons={"beta-2": Waits(needs=Gpus(99))})
        return fact

    found = await verify(await rewritten(await decided_today("elastic-fifo"), excuse))
    assert found.difference is not None
    assert (found.difference.job_id, found.difference.what) == ("beta-2", "reason")


async def test_verify_when_a_queue_change_was_altered_names_the_job() -> None:
    log = await open_log(LOGS / "tiresias")
    moved = next(event for event in await log.read(0, 10_000) if isinstance(event.data, JobQueueLevelChanged))

    def promote(event: Event) -> AnyFact:
        fact = event.data
        if isinstance(fact, JobQueueLevelChanged) and event.position == moved.position:
            return replace(fact, queue_level=7)
        return fact

    found = await verify(await rewritten(log, promote))
    assert isinstance(moved.data, JobQueueLevelChanged)
    assert found.difference is not None
    assert (found.difference.position, found.difference.job_id) == (moved.position, moved.data.job_id)


async def test_verify_when_another_policy_was_in_force_than_the_plan_says_names_the_policy() -> None:
    def other(event: Event) -> AnyFact:
        fact = event.data
        return replace(fact, settings={"policy": "srjf"}) if isinstance(fact, SettingsChanged) else fact

    found = await verify(await rewritten(await open_log(LOGS / "elastic-fifo"), other))
    assert found.difference is not None
    assert (found.difference.what, found.difference.recorded) == ("policy", "elastic-fifo")


async def test_verify_when_the_policy_is_unknown_says_so() -> None:
    def unheard_of(event: Event) -> AnyFact:
        fact = event.data
        return replace(fact, settings={"policy": "magic"}) if isinstance(fact, SettingsChanged) else fact

    altered = await rewritten(await open_log(LOGS / "elastic-fifo"), unheard_of)
    with pytest.raises(InvalidInput, match="magic"):
        await verify(altered)


async def test_verify_when_the_log_is_empty_finds_nothing_to_verify() -> None:
    assert (await verify(MemoryStore())).decisions == 0


async def test_verify_when_another_writer_wrote_between_basis_and_plan_uses_the_basis() -> None:
    store = MemoryStore()
    for event in await (await decided_today("elastic-fifo")).read(0, 10_000):
        is_third = isinstance(event.data, PlanAdopted) and event.data.number == 3
        if is_third:
            late = Fact(data=JobSubmitted(spec=a_spec("late")), event_id="late", recorded_at=event.recorded_at)
            await store.append("job.late", 0, [late])
        fact = Fact(data=event.data, event_id=event.event_id, recorded_at=event.recorded_at)
        await store.append(event.stream, event.version - 1, [fact], epoch=event.epoch)
        if is_third:
            break
    assert await verify(store) == Verification(decisions=3)
