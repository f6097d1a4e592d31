"""Moments, scenes and explanations of stored logs, and what another policy would have made of them."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.builders import a_job, a_node, a_spec, a_state
from tests.reasons import said
from voda.controller.follower import catch_up
from voda.controller.snapshots import take_snapshots
from voda.domain.errors import InvalidInput
from voda.domain.job import Phase
from voda.domain.settings import Settings
from voda.domain.state import Estimate
from voda.events.envelope import Fact
from voda.events.types import JobSubmitted
from voda.log.archive.copy import copy_log
from voda.log.factory import open_log
from voda.log.memory import MemoryStore
from voda.log.store import EventStore
from voda.planner.registries import Registries
from voda.policies import POLICIES
from voda.projections.live import Live
from voda.simulator.engine import Simulation, SimulationOptions
from voda.simulator.whatif.comparison import gain_s
from voda.simulator.whatif.forecast import expected_start
from voda.simulator.whatif.what_if import AlternativePolicy, compare_with
from voda.simulator.workloads.catalogue import load_workload
from voda.timetravel.explanation import explain_live
from voda.timetravel.job_explanation import explain
from voda.timetravel.moment import AtInstant, AtPosition, BeforeLast, LogPlace, SinceFirst, find, parse_moment, rfc3339
from voda.timetravel.replay import live_at
from voda.timetravel.snapshot_tables import cluster_snapshot, cluster_snapshots

LOGS = Path(__file__).parent / "logs"


async def stored(name: str = "elastic-fifo") -> EventStore:
    store = MemoryStore()
    await copy_log(await open_log(LOGS / name), store)
    return store


async def place(store: EventStore, moment: str) -> LogPlace:
    return await find(store, parse_moment(moment))


# ---- moments


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("42", AtPosition(42)),
        ("2026-01-31T12:00:00Z", AtInstant(1769860800.0)),
        ("2026-01-31T13:00:00+01:00", AtInstant(1769860800.0)),
        ("2026-01-31 12:00", AtInstant(1769860800.0)),
        ("+1h30m", SinceFirst(5400.0)),
        ("-10m", BeforeLast(600.0)),
        ("+2d0.5s", SinceFirst(172800.5)),
    ],
)
def test_moment_when_written_as_people_do_is_understood(text: str, moment: object) -> None:
    assert parse_moment(text) == moment


@pytest.mark.parametrize("text", ["", "+", "yesterday", "-5x", "1e3", "2026-13-01T00:00:00Z", "٤٢"])
def test_moment_when_it_is_none_is_refused_with_examples(text: str) -> None:
    with pytest.raises(InvalidInput, match="is no moment: expected a position"):
        parse_moment(text)


@pytest.mark.parametrize("text", ["+99999999999999999999h", "-36501d", f"+{'9' * 400}s"])
def test_span_when_it_is_too_long_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="is too long: expected a span of at most 36500d"):
        parse_moment(text)


@pytest.mark.parametrize("text", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59Z", "0001-06-01"])
def test_time_when_it_is_at_the_edge_of_the_calendar_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="expected a year from 2 to 9998"):
        parse_moment(text)


async def test_place_of_a_time_is_the_last_event_by_then() -> None:
    store = await stored()
    at_40_s = await place(store, "+40s")
    assert at_40_s.position == 15
    assert (await find(store, SinceFirst(40.0), before=True)).position == 11
    assert (await place(store, "+39s")).position == 11
    assert (await place(store, "1999-01-01T00:00:00Z")).position == 0
    assert (await place(store, "-0s")).position == await store.position()


async def test_place_beyond_the_end_is_refused() -> None:
    with pytest.raises(InvalidInput, match="position 999 is beyond the end of the log"):
        await place(await stored(), "999")


def test_instant_when_written_has_the_decimals_it_needs() -> None:
    assert rfc3339(1769860800.0) == "2026-01-31T12:00:00Z"
    assert rfc3339(1769860800.25) == "2026-01-31T12:00:00.25Z"
    assert rfc3339(1769860800.25, decimals=0) == "2026-01-31T12:00:00Z"


# ---- the past


@settings(max_examples=25)
@given(data=st.data())
async def test_state_from_any_snapshot_and_its_tail_equals_the_whole_replay(data: st.DataObject) -> None:
    store = await stored("elastic-tiresias")
    position = data.draw(st.integers(0, await store.position()))
    snapshot = Live()
    taken = data.draw(st.integers(0, position))
    await catch_up(store, [snapshot], after=0, until=taken)
    await take_snapshots(store, [snapshot], taken)
    whole = Live()
    await catch_up(store, [whole], after=0, until=position)
    assert (await live_at(store, position)).state_hash() == whole.state_hash()


async def test_scene_shows_who_holds_what_and_how_far_each_job_is() -> None:
    store = await stored()
    there = await place(store, "+2m")
    (shown,) = cluster_snapshots(await live_at(store, there.position), there.at)
    assert [dict(node.held_gpus) for node in shown.nodes] == [
        {"alpha-1": 1, "alpha-2": 2, "gamma-1": 1},
        {"beta-1": 2, "gamma-1": 2},
    ]
    assert [node.free_gpus for node in shown.nodes] == [0, 0]
    alpha = shown.jobs[0]
    assert (alpha.job_id, alpha.phase, alpha.replicas, alpha.planned) == ("alpha-1", Phase.RUNNING, 1, 1)
    assert alpha.attained_gpu_s == 40 * 4 + 50 * 2 + 30 * 1


async def test_scene_when_the_log_is_empty_is_none() -> None:
    assert cluster_snapshots(await live_at(MemoryStore(), 0), 0.0) == ()


# ---- explanations


async def test_explanation_of_a_waiting_job_gives_numbers_and_a_start_that_comes_true() -> None:
    store = await stored()
    there = await place(store, "+14m")
    told = await explain(store, "gamma-2", there)
    assert (told.phase, told.queue_position, told.queue_length) == (Phase.WAITING, 3, 3)
    assert said(told.reason) == "waits: needs 3 GPUs, none is free"
    assert told.shortage is not None
    assert (told.shortage.needs_gpus, told.shortage.free_gpus, told.shortage.capacity_gpus) == (3, 0, 8)
    assert [decision.cause for decision in told.decisions] == ["job.submitted"]
    assert await expected_start(store, "gamma-2", there.position, pool="default") is not None


async def test_explanation_of_a_running_job_says_what_was_decided_on_it() -> None:
    store = await stored()
    told = await explain(store, "alpha-1", await place(store, "+2m"))
    assert (told.phase, told.nodes, told.next) == (Phase.RUNNING, ("node-01",), ("node-01",))
    assert [(len(one.before), len(one.after)) for one in told.decisions] == [(0, 4), (4, 2), (2, 1)]
    assert told.shortage is None


async def test_explanation_of_a_preempted_job_says_that_it_ran_before() -> None:
    store = await stored("elastic-tiresias")
    live = Live()
    preempted: tuple[str, int, float] | None = None
    for event in await store.read(0, 1000):
        live.apply(event)
        for job_id, job in live.cluster.jobs("default").items():
            if job.is_preempted:
                preempted = preempted or (job_id, event.position, event.recorded_at)
    assert preempted is not None
    job_id, position, at = preempted
    assert (await explain(store, job_id, LogPlace(position=position, at=at))).is_preempted


async def test_explanation_of_a_finished_job_is_its_story() -> None:
    store = await stored()
    told = await explain(store, "gamma-1", await place(store, "-0s"))
    assert told.phase is Phase.COMPLETED
    assert told.ended is not None
    assert (told.ended.starts, told.ended.resizes, told.ended.queueing_s) == (1, 0, 0.0)


async def test_explanation_of_an_unknown_job_names_the_closest() -> None:
    store = await stored()
    with pytest.raises(InvalidInput, match=r"'gama-1' is not in this log\. Did you mean 'gamma-1'\?"):
        await explain(store, "gama-1", await place(store, "-0s"))
    with pytest.raises(InvalidInput, match=r"'JOB' is not in this log\. It knows \S+, \S+, \S+ and \d+ others\.$"):
        await explain(store, "JOB", await place(store, "-0s"))
    with pytest.raises(InvalidInput, match="huge-1 was submitted at position"):
        await explain(store, "huge-1", await place(store, "3"))


def test_suggestion_when_a_smaller_minimum_fits_names_the_largest_that_does() -> None:
    running = a_job("old", workers={0: "n1", 1: "n1"}, min_replicas=2, max_replicas=2)
    state = a_state(
        jobs=[running, a_job("new", submitted_at=1.0, min_replicas=3, max_replicas=4)],
        nodes=[a_node("n1", gpus=4)],
        placement={"old": ("n1", "n1")},
        settings=Settings(policy="elastic-fifo"),
    )
    told = explain_live(state, "new", 2.0, policies=POLICIES, decide=Registries().decider(state, cause="test"))
    assert "would start at once with min 2" in told.suggestions
    assert told.shortage is not None
    assert (told.shortage.free_gpus, told.shortage.largest_free_gpus) == (2, 2)


def test_suggestion_when_another_policy_would_start_it_says_at_whose_cost() -> None:
    running = a_job("old", workers=dict.fromkeys(range(4), "n1"), min_replicas=1, max_replicas=4)
    running = replace(running, spec=replace(running.spec, requested_replicas=4))
    state = a_state(
        jobs=[running, a_job("new", submitted_at=1.0, min_replicas=1, max_replicas=4)],
        nodes=[a_node("n1", gpus=4)],
        placement={"old": ("n1",) * 4},
        settings=Settings(policy="fifo"),
    )
    told = explain_live(state, "new", 2.0, policies=POLICIES, decide=Registries().decider(state, cause="test"))
    under = [one for one in told.suggestions if one.startswith("would start at once under")]
    assert under[0] == "would start at once under afs-l, ffdl, at the cost of old (4 -> 3)"
    assert any("elastic-fifo" in one and one.endswith(", at the cost of old (4 -> 2)") for one in under)


def test_suggestion_when_the_cluster_is_too_small_says_that_it_can_never_start() -> None:
    state = a_state(jobs=[a_job("big", min_replicas=2, max_replicas=2, gpus_per_replica=8)], nodes=[a_node("n1")])
    told = explain_live(state, "big", 1.0, policies=POLICIES, decide=Registries().decider(state, cause="test"))
    assert told.suggestions == (
        "cannot start on this cluster even when it is empty: it needs 2 workers of 8 GPUs, and no node takes one now",
    )


def test_suggestion_when_the_nodes_are_drained_says_which_to_undrain() -> None:
    nodes = [a_node("n1", gpus=2), a_node("n2", gpus=1)]
    state = a_state(jobs=[a_job("big", min_replicas=2, max_replicas=2)], nodes=nodes)
    drained = replace(
        state, nodes={**state.nodes, "n1": replace(state.nodes["n1"], is_draining=True)}, drains={"n1": "new fan"}
    )
    told = explain_live(drained, "big", 1.0, policies=POLICIES, decide=Registries().decider(drained, cause="test"))
    assert told.suggestions[0] == "cannot start while n1 is drained: voda nodes undrain NODE"
    alone = replace(drained, nodes={"n2": state.nodes["n2"]})
    told = explain_live(alone, "big", 1.0, policies=POLICIES, decide=Registries().decider(alone, cause="test"))
    assert told.suggestions[0] == (
        "cannot start on this cluster even when it is empty: it needs 2 workers of 1 GPU, and only 1 fits"
    )


# ---- what if


async def test_what_if_with_the_same_policy_gives_about_the_recorded_run() -> None:
    settings = Settings(policy="elastic-fifo")
    run = await Simulation(load_workload("voda-exp/run_1"), SimulationOptions(settings=settings)).run()
    verdict = await compare_with(run.store, 0, AlternativePolicy(policy="elastic-fifo"))
    assert (verdict.jobs, verdict.left_out) == (24, 0)
    assert verdict.resimulated == verdict.what_if
    assert verdict.what_if.avg_jct_s == pytest.approx(verdict.recorded.avg_jct_s, rel=0.01)
    assert verdict.what_if.makespan_s == pytest.approx(verdict.recorded.makespan_s, rel=0.02)


async def test_what_if_with_another_policy_tells_what_that_policy_would_really_have_done() -> None:
    workload = load_workload("voda-exp/run_1")
    # An elastic policy has tried all sizes; after a rigid one, the speeds at other sizes are extrapolated.
    recorded = await Simulation(workload, SimulationOptions(settings=Settings(policy="elastic-fifo"))).run()
    truth = await Simulation(workload, SimulationOptions(settings=Settings(policy="afs-l"))).run()
    told = await compare_with(recorded.store, 0, AlternativePolicy(policy="afs-l"))
    really = await compare_with(truth.store, 0, AlternativePolicy(policy="afs-l"))
    assert told.what_if.avg_jct_s == pytest.approx(really.recorded.avg_jct_s, rel=0.05)
    assert told.what_if.avg_jct_s < told.recorded.avg_jct_s
    assert told.winners
    assert all(gain_s(shift) > 0 for shift in told.winners)


@pytest.mark.parametrize("name", ["elastic-fifo", "elastic-tiresias", "tiresias"])
async def test_what_if_from_any_position_ends_every_job(name: str) -> None:
    store = await stored(name)
    for position in range(0, await store.position() + 1, 7):
        verdict = await compare_with(store, position, AlternativePolicy(policy="fifo"))
        assert verdict.left_out == 0, position


async def test_what_if_leaves_the_log_alone() -> None:
    store = await stored()
    before = await store.heads()
    await compare_with(store, 50, AlternativePolicy(policy="srjf"))
    assert await store.heads() == before


async def test_what_if_of_a_pool_that_is_not_there_is_refused() -> None:
    with pytest.raises(InvalidInput, match="pool 'v100' is not in the log: it has default"):
        await compare_with(await stored(), 0, AlternativePolicy(policy="fifo"), pool="v100")


async def test_what_if_of_several_pools_asks_which() -> None:
    store = MemoryStore()
    for number, pool in enumerate(("a100", "v100")):
        spec = a_spec(f"job-{pool}", pool=pool)
        await store.append(
            f"job.{spec.job_id}", 0, [Fact(data=JobSubmitted(spec=spec), event_id=pool, recorded_at=number)]
        )
    with pytest.raises(InvalidInput, match="the log has the pools a100, v100: name one with --pool"):
        await compare_with(store, 0, AlternativePolicy(policy="fifo"))


def test_estimate_when_unknown_leaves_the_end_open() -> None:
    state = a_state(jobs=[a_job("a", workers={0: "n1"})], nodes=[a_node("n1")])
    known = replace(state, estimates={"a": Estimate(speedup=(0.0, 1.0), remaining_s=60.0)})
    assert cluster_snapshot(state, 5.0).jobs[0].ends_at is None
    assert cluster_snapshot(known, 5.0).jobs[0].ends_at == 65.0
