"""Leadership on virtual time: who leads when, and that no epoch is ever led in by two."""

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.leases import MemoryApi, Objects, ended
from tests.virtual_time import now_s, virtually
from voda.app.leadership import Leadership
from voda.controller.controller import Controller
from voda.controller.leader_epochs import LeaderEpochs
from voda.domain.errors import Fenced, LogDamaged, StoreUnavailable
from voda.events.envelope import ANY_VERSION, Fact
from voda.events.types import LEADERSHIP, LeaderElected
from voda.kubernetes_client.lease import LeaseClient
from voda.log.memory import MemoryStore
from voda.placement import PLACERS
from voda.policies import POLICIES

LEASE = "/apis/coordination.k8s.io/v1/namespaces/voda/leases/voda"
STREAM = "decisions.default"


class SkewedClock:
    """The loop's time, off by some seconds."""

    def __init__(self, name: str, skew_s: float) -> None:
        self._name, self._skew_s, self._ids = name, skew_s, 0

    def now(self) -> float:
        return 1_700_000_000.0 + round(now_s() + self._skew_s, 6)

    def time_of_day(self) -> float:
        return self.now()

    def new_id(self) -> str:
        self._ids += 1
        return f"{self._name}-{self._ids}"


class Act(NamedTuple):
    """Something done as a leader."""

    at: float
    epoch: int
    by: str


class Stage:
    """Objects, a log, and candidates that come and go."""

    def __init__(self) -> None:
        self.objects = Objects()
        self.store = MemoryStore()
        self.acts: list[Act] = []
        self.overlaps: list[tuple[Act, str]] = []
        self.candidates: list[Candidate] = []

    def add(self, *, skew_s: float = 0.0) -> "Candidate":
        candidate = Candidate(self, f"c{len(self.candidates)}", skew_s)
        self.candidates.append(candidate)
        return candidate

    def leaders(self) -> list[str]:
        return [each.name for each in self.candidates if each.leadership.is_leading]

    def edit(self, **spec: object) -> None:
        if LEASE in self.objects.kept:
            kept = self.objects.kept[LEASE]
            self.objects.put(LEASE, {**kept, "spec": {**kept["spec"], **spec}})

    async def stop(self) -> None:
        for candidate in self.candidates:
            await candidate.stop()


class Candidate:
    """One replica: as a leader it takes the pool over by the real controller and then acts twice a second."""

    def __init__(self, stage: Stage, name: str, skew_s: float) -> None:
        self.name = name
        self.stage = stage
        self.api = MemoryApi(stage.objects)
        self.led: list[int] = []
        self.stood_by = 0
        self.raises: Exception | None = None
        clock = SkewedClock(name, skew_s)
        self.clock = clock
        self.leadership = Leadership(
            LeaseClient(self.api, "voda", "voda", clock=clock), LeaderEpochs(stage.store, clock), name
        )
        self.task = asyncio.get_running_loop().create_task(self.leadership.run(self.lead, self.stand_by))

    async def lead(self, epoch: int) -> None:
        self.led.append(epoch)
        if self.raises is not None:
            raise self.raises
        controller = Controller(
            pool="default", store=self.stage.store, clock=self.clock, policies=POLICIES.choose, placers=PLACERS.choose
        )
        await controller.lead(self.name, epoch)
        while True:
            self.act(epoch)
            await controller.step()
            await asyncio.sleep(0.5)

    def act(self, epoch: int) -> None:
        act = Act(now_s(), epoch, self.name)
        self.stage.acts.append(act)
        self.stage.overlaps += [(act, other) for other in self.stage.leaders() if other != self.name]

    async def stand_by(self) -> None:
        self.stood_by += 1
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.01)

    async def decide_late(self, epoch: int) -> None:
        """Do what a leader that was paused does when it goes on."""
        data = LeaderElected(pool="default", leader=self.name)
        fact = Fact(data=data, event_id=self.clock.new_id(), recorded_at=0.0, actor=f"late {self.name}")
        await self.stage.store.append(STREAM, ANY_VERSION, [fact], epoch=epoch)

    async def stop(self) -> None:
        await ended(self.task)

    async def kill(self) -> None:
        self.api.is_away = True
        await ended(self.task)


async def a_led_stage(candidates: int = 2) -> Stage:
    """Return a stage where c0 leads."""
    stage = Stage()
    stage.add()
    await asyncio.sleep(1.0)
    for _ in range(candidates - 1):
        stage.add()
    await asyncio.sleep(1.0)
    assert stage.leaders() == ["c0"]
    return stage


def test_first_candidate_leads_at_once_in_the_first_epoch() -> None:
    async def play() -> None:
        stage = await a_led_stage(candidates=2)
        first, second = (each.leadership for each in stage.candidates)
        assert (first.epoch, first.leader, first.failure) == (1, "c0", "")
        assert (second.epoch, second.leader, second.is_leading) == (0, "c0", False)
        assert (stage.candidates[0].led, stage.candidates[1].stood_by) == ([1], 1)
        assert stage.objects.kept[LEASE]["spec"]["leaseTransitions"] == 1
        await stage.stop()

    virtually(play())


def test_epoch_when_the_log_was_led_before_is_higher_than_its_highest() -> None:
    async def play() -> None:
        stage = Stage()
        fact = Fact(data=LeaderElected(pool="x", leader="up"), event_id="1", recorded_at=0.0)
        await stage.store.append("decisions.x", 0, [fact], epoch=41)
        stage.add()
        await asyncio.sleep(1.0)
        assert stage.candidates[0].led == [42]
        await stage.stop()

    virtually(play())


def test_leader_when_stopped_hands_over_in_a_moment() -> None:
    async def play() -> None:
        stage = await a_led_stage()
        stopped_at = now_s()
        await stage.candidates[0].stop()
        await asyncio.sleep(1.0)
        assert stage.leaders() == ["c1"]
        assert next(act.at for act in stage.acts if act.by == "c1") - stopped_at < 0.2
        assert stage.candidates[1].led == [2]
        await stage.stop()
        assert stage.objects.kept[LEASE]["spec"]["holderIdentity"] == ""

    virtually(play())


def test_leader_when_stopped_in_the_midst_of_a_renewal_releases_all_the_same() -> None:
    async def play(wait_s: float) -> None:
        stage = await a_led_stage()
        await asyncio.sleep(wait_s)
        await stage.candidates[0].stop()
        await asyncio.sleep(0.5)
        assert stage.leaders() == ["c1"]
        await stage.stop()

    for tenths_of_a_latency in range(60):
        virtually(play(1.98 + tenths_of_a_latency / 1_000))


def test_candidate_when_stopped_in_the_midst_of_taking_the_lease_leaves_it_to_others() -> None:
    async def play(wait_s: float) -> None:
        stage = await a_led_stage()
        await stage.candidates[0].stop()
        await asyncio.sleep(wait_s)
        await stage.candidates[1].stop()
        stage.add()
        await asyncio.sleep(1.0)
        assert stage.leaders() == ["c2"]
        await stage.stop()

    for thousandths in range(0, 100, 2):
        virtually(play(thousandths / 1_000))


def test_leader_when_killed_is_followed_once_its_lease_expired() -> None:
    async def play() -> None:
        stage = await a_led_stage()
        died_at = now_s()
        await stage.candidates[0].kill()
        await asyncio.sleep(20.0)
        assert stage.leaders() == ["c1"]
        took_s = next(act.at for act in stage.acts if act.by == "c1") - died_at
        assert 10.0 < took_s <= 15.5
        await stage.stop()

    virtually(play())


def test_leader_when_the_server_is_away_for_12_s_has_stopped_by_then_and_leads_again_later() -> None:
    async def play() -> None:
        stage = await a_led_stage(candidates=1)
        leader, went_at = stage.candidates[0], now_s()
        leader.api.is_away = True
        await asyncio.sleep(9.9 - 2.0)
        assert "no answer" in leader.leadership.failure
        await asyncio.sleep(4.1)
        assert stage.leaders() == []
        assert max(act.at for act in stage.acts) <= went_at + 10.0
        leader.api.is_away = False
        await asyncio.sleep(6.0)
        assert (stage.leaders(), leader.led, leader.leadership.failure) == (["c0"], [1, 2], "")
        await stage.stop()

    virtually(play())


@pytest.mark.parametrize("away_s", [0.1, 1.0, 3.0, 5.0])
def test_leader_when_the_server_is_away_shortly_goes_on(away_s: float) -> None:
    async def play() -> None:
        stage = await a_led_stage()
        for candidate in stage.candidates:
            candidate.api.is_away = True
        await asyncio.sleep(away_s)
        for candidate in stage.candidates:
            candidate.api.is_away = False
        await asyncio.sleep(30.0)
        assert (stage.candidates[0].led, stage.leaders()) == ([1], ["c0"])
        await stage.stop()

    virtually(play())


def test_leader_when_only_the_answers_are_lost_stops_in_time_and_is_followed() -> None:
    async def play() -> None:
        stage = await a_led_stage()
        stage.candidates[0].api.loses_answers = True
        await asyncio.sleep(60.0)
        # Every attempt of it is heeded by the server, so others may have to wait for long; but none leads beside it.
        assert stage.overlaps == []
        stage.candidates[0].api.loses_answers = False
        await asyncio.sleep(30.0)
        assert len(stage.leaders()) == 1
        await stage.stop()

    virtually(play())


def test_standby_when_its_watch_hangs_still_takes_over() -> None:
    async def play() -> None:
        stage = await a_led_stage()
        stage.candidates[1].api.is_deaf = True
        await asyncio.sleep(30.0)
        assert stage.leaders() == ["c0"]
        await stage.candidates[0].stop()
        await asyncio.sleep(5.0)
        assert stage.leaders() == ["c1"]
        # What is told late, of the time before, costs it nothing.
        stage.candidates[1].api.is_deaf = False
        await asyncio.sleep(5.0)
        assert (stage.leaders(), stage.candidates[1].led) == (["c1"], [2])
        await stage.stop()

    virtually(play())


def test_lease_when_deleted_by_hand_is_made_again_by_its_leader_in_a_new_epoch() -> None:
    async def play() -> None:
        stage = await a_led_stage()
        stage.objects.remove(LEASE)
        await asyncio.sleep(5.0)
        assert (stage.leaders(), stage.candidates[0].led, stage.overlaps) == (["c0"], [1, 2], [])
        await stage.stop()

    virtually(play())


def test_lease_when_given_to_somebody_by_hand_is_taken_back_once_that_one_stays_silent() -> None:
    async def play() -> None:
        stage = await a_led_stage()
        stage.edit(holderIdentity="ghost", leaseTransitions=77, leaseDurationSeconds=100_000)
        await asyncio.sleep(1.0)
        assert stage.leaders() == []
        await asyncio.sleep(62.0)
        (leader,) = (each for each in stage.candidates if each.leadership.is_leading)
        assert leader.leadership.epoch == 78
        await stage.stop()

    virtually(play())


def test_lease_when_its_transitions_are_set_back_by_hand_yields_an_epoch_that_the_log_takes() -> None:
    async def play() -> None:
        stage = await a_led_stage()
        for _ in range(3):
            stage.edit(leaseTransitions=0)
            await asyncio.sleep(5.0)
        (leader,) = (each for each in stage.candidates if each.leadership.is_leading)
        assert leader.leadership.epoch == 4
        await stage.stop()

    virtually(play())


def test_leader_whose_lease_gets_a_label_goes_on() -> None:
    async def play() -> None:
        stage = await a_led_stage()
        for _ in range(100):
            stage.edit()
            await asyncio.sleep(0.3)
        assert stage.candidates[0].led == [1]
        await stage.stop()

    virtually(play())


def test_former_leader_that_goes_on_is_fenced_by_the_log() -> None:
    async def play() -> None:
        stage = await a_led_stage()
        first, second = stage.candidates
        first.api.is_away = True
        await asyncio.sleep(20.0)
        assert second.leadership.is_leading
        with pytest.raises(Fenced):
            await first.decide_late(1)
        await stage.stop()

    virtually(play())


def test_lead_when_fenced_gives_the_lease_up_and_campaigns_again() -> None:
    async def play() -> None:
        stage = Stage()
        candidate = stage.add()
        candidate.raises = ExceptionGroup("pools", [Fenced("another one")])
        await asyncio.sleep(1.0)
        assert stage.leaders() == []
        assert stage.objects.kept[LEASE]["spec"]["holderIdentity"] == ""
        candidate.raises = None
        await asyncio.sleep(2.0)
        assert (stage.leaders(), candidate.led) == (["c0"], [1, 2])
        await stage.stop()

    virtually(play())


def test_lead_when_it_fails_otherwise_ends_the_run_and_gives_the_lease_up() -> None:
    async def play() -> None:
        stage = Stage()
        candidate = stage.add()
        candidate.raises = LogDamaged("position 7")
        with pytest.raises(ExceptionGroup) as failed:
            await candidate.task
        assert failed.group_contains(LogDamaged)
        assert stage.objects.kept[LEASE]["spec"]["holderIdentity"] == ""

    virtually(play())


def test_stop_when_lead_is_fenced_while_it_is_cancelled_stops() -> None:
    async def play() -> None:
        stage = await a_led_stage(candidates=1)
        leadership = stage.candidates[0].leadership
        await stage.stop()

        async def stubborn(epoch: int) -> None:
            try:
                await asyncio.Event().wait()
            finally:
                raise Fenced("meanwhile")

        task = asyncio.get_running_loop().create_task(leadership.run(stubborn))
        await asyncio.sleep(1.0)
        assert leadership.is_leading
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    virtually(play())


def test_log_when_it_cannot_be_read_lets_nobody_lead_and_tells_why() -> None:
    class AwayStore(MemoryStore):
        is_away = True

        async def heads(self) -> dict[str, object]:  # type: ignore[override]
            if self.is_away:
                raise StoreUnavailable("the log is away")
            return await super().heads()  # type: ignore[return-value]

    async def play() -> None:
        stage = Stage()
        stage.store = store = AwayStore()
        candidate = stage.add()
        await asyncio.sleep(1.0)
        assert "the log is away" in candidate.leadership.failure
        assert LEASE not in stage.objects.kept
        store.is_away = False
        await asyncio.sleep(2.0)
        assert (stage.leaders(), candidate.leadership.failure) == (["c0"], "")
        await stage.stop()

    virtually(play())


async def test_epoch_when_claimed_by_two_is_given_to_one() -> None:
    store, clock = MemoryStore(), SkewedClock("x", 0.0)
    epochs = LeaderEpochs(store, clock)
    outcomes = await asyncio.gather(epochs.claim(5, "a"), epochs.claim(5, "b"), return_exceptions=True)
    assert sorted(isinstance(outcome, Fenced) for outcome in outcomes) == [False, True]
    with pytest.raises(Fenced):
        await epochs.claim(4, "c")
    assert await epochs.highest() == 5


# ---- whatever happens, in whatever order

FAULTS = ("away", "deaf", "lost answers", "killed", "stopped", "started", "late")
EDITS = ("deleted", "cleared", "ghost", "reset", "renumbered", "labelled")


class Fault(NamedTuple):
    after_s: float
    kind: str
    candidate: int
    for_s: float


def faults(kinds: Sequence[str]) -> st.SearchStrategy[list[Fault]]:
    one = st.builds(Fault, st.floats(0, 12), st.sampled_from(kinds), st.integers(0, 5), st.floats(0.1, 20))
    return st.lists(one, max_size=12)


async def suffer(stage: Stage, fault: Fault) -> None:
    """Let something happen, and pass once it is over."""
    candidate = stage.candidates[fault.candidate % len(stage.candidates)]
    match fault.kind:
        case "away" | "deaf" | "lost answers":
            name = {"away": "is_away", "deaf": "is_deaf", "lost answers": "loses_answers"}[fault.kind]
            setattr(candidate.api, name, True)
            await asyncio.sleep(fault.for_s)
            setattr(candidate.api, name, candidate.task.done())
        case "killed":
            await candidate.kill()
        case "stopped":
            await candidate.stop()
        case "started":
            stage.add(skew_s=(fault.for_s - 10) * 1e6)
        case "late":
            epoch = candidate.led[-1] if candidate.led else 0
            await asyncio.sleep(fault.for_s)
            head = await stage.store.head(STREAM)
            if 0 < epoch < head.epoch:
                with pytest.raises(Fenced):
                    await candidate.decide_late(epoch)
        case "deleted":
            stage.objects.remove(LEASE)
        case "cleared":
            stage.edit(holderIdentity="")
        case "ghost":
            stage.edit(holderIdentity="ghost", leaseDurationSeconds=3)
        case "reset":
            stage.edit(leaseTransitions=0)
        case "renumbered":
            stage.edit(leaseTransitions=int(fault.for_s * 1e8))
        case "labelled":
            stage.edit()


async def endure(happenings: Sequence[Fault]) -> Stage:
    """Return the stage after all that, some time later."""
    stage = Stage()
    for skew_s in (0.0, 86_400.0, -1e9):
        stage.add(skew_s=skew_s)
    async with asyncio.TaskGroup() as group:
        for happening in happenings:
            await asyncio.sleep(happening.after_s)
            group.create_task(suffer(stage, happening))
    stage.add()
    await asyncio.sleep(40.0)
    assert len(stage.leaders()) == 1
    await stage.stop()
    return stage


async def actors(store: MemoryStore) -> dict[int, set[str]]:
    """Return epoch -> who claimed it or recorded decisions in it."""
    found: dict[int, set[str]] = defaultdict(set)
    for event in await store.read(0, 100_000):
        if event.stream == LEADERSHIP or isinstance(event.data, LeaderElected):
            assert isinstance(event.data, LeaderElected)
            found[event.epoch].add(event.data.leader)
    return found


@given(faults(FAULTS))
def test_no_two_lead_at_once_whatever_fails(happenings: list[Fault]) -> None:
    async def play() -> None:
        stage = await endure(happenings)
        assert stage.overlaps == []
        assert all(len(names) == 1 for names in (await actors(stage.store)).values())

    virtually(play())


@given(faults((*FAULTS, *EDITS)))
def test_no_two_act_in_one_epoch_whatever_fails_or_is_done_to_the_lease_by_hand(happenings: list[Fault]) -> None:
    async def play() -> None:
        stage = await endure(happenings)
        by_epoch = await actors(stage.store)
        assert all(len(names) == 1 for names in by_epoch.values())
        for act in stage.acts:
            assert by_epoch[act.epoch] == {act.by}
        decided = [event.epoch for event in await stage.store.read(0, 100_000, stream=STREAM)]
        assert decided == sorted(decided)

    virtually(play())
