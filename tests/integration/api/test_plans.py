"""Plans over HTTP."""

from tests.builders import a_spec
from tests.service import Service, a_service
from voda.clock import VirtualClock
from voda.controller.controller import Controller
from voda.events.types import JobCanceled, JobCompleted, JobSubmitted, SettingsChanged, WorkerStarted
from voda.placement import PLACERS
from voda.policies import POLICIES
from voda.wire.base import Problem
from voda.wire.pools import PlanView


async def a_leader(service: Service) -> Controller:
    """Return a controller that decides at once."""
    backend = service.backend
    await service.happens(SettingsChanged(pool="default", settings={"ratelimit_s": 0.0}))
    leader = Controller(
        pool="default",
        store=backend.journal.store,
        clock=backend.journal.clock,
        policies=POLICIES.choose,
        placers=PLACERS.choose,
    )
    await leader.lead("test")
    return leader


async def decided(service: Service, leader: Controller) -> None:
    """Have a plan decided, and the API see it."""
    await leader.step()
    await service.backend.journal.view.wait_for(await service.backend.journal.store.position())


def pass_time(service: Service, span_s: float = 1.0) -> None:
    """Let the clock go on."""
    clock = service.backend.journal.clock
    assert isinstance(clock, VirtualClock)
    clock.move_to(clock.now() + span_s)


async def plan(service: Service, number: int) -> PlanView:
    answer = await service.ask("GET", f"/api/v1/pools/default/plans/{number}")
    assert answer.status == 200
    return answer.as_a(PlanView)


async def test_plan_when_none_was_made_then_is_empty() -> None:
    async with a_service() as service:
        now = (await service.ask("GET", "/api/v1/pools/default/plan")).as_a(PlanView)
        assert (now.number, now.position, now.decided_at, now.placement) == (0, 0, None, {})
        answer = await service.ask("GET", "/api/v1/pools/default/plans/1")
        assert (answer.status, "no plan yet" in answer.as_a(Problem).detail) == (404, True)


async def test_plan_when_asked_for_by_number_then_is_whole_and_tells_what_it_changed() -> None:
    async with a_service(nodes={"n1": 2}) as service:
        leader = await a_leader(service)
        for job_id in ("a", "b", "c"):
            await service.happens(JobSubmitted(spec=a_spec(job_id)))
            await decided(service, leader)
        await service.happens(WorkerStarted(job_id="a", workers={0: "n1"}))
        await service.happens(JobCompleted(job_id="a"))
        await decided(service, leader)
        now = (await service.ask("GET", "/api/v1/pools/default/plan")).as_a(PlanView)
        assert (now.number, now.placement) == (4, {"b": ("n1",), "c": ("n1",)})
        (event,) = await service.backend.journal.store.read(now.position - 1, 1)
        assert event.type == "plan.adopted"
        placements = [(await plan(service, number)).placement for number in (1, 2, 3, 4)]
        assert placements == [{"a": ("n1",)}, {"a": ("n1",), "b": ("n1",)}, {"a": ("n1",), "b": ("n1",)}, now.placement]
        assert [(await plan(service, number)).changed for number in (1, 2, 3, 4)] == [("a",), ("b",), (), ("a", "c")]
        assert set((await plan(service, 3)).reasons) == {"a", "b", "c"}
        answer = await service.ask("GET", "/api/v1/pools/default/plans/5")
        assert (answer.status, "1 to 4" in answer.as_a(Problem).detail) == (404, True)


async def test_plan_when_jobs_ended_while_they_waited_then_has_no_words_on_them() -> None:
    async with a_service(nodes={"n1": 1}) as service:
        leader = await a_leader(service)
        for job_id in ("a", "b"):
            await service.happens(JobSubmitted(spec=a_spec(job_id)))
            await decided(service, leader)
        assert set((await plan(service, 2)).reasons) == {"a", "b"}
        pass_time(service)
        await service.happens(JobCanceled(job_id="b"))
        pass_time(service)
        await service.happens(JobSubmitted(spec=a_spec("c")))
        await decided(service, leader)
        assert set((await plan(service, 3)).reasons) == {"a", "c"}
        assert set((await plan(service, 2)).reasons) == {"a", "b"}


async def test_plan_when_the_number_is_none_then_is_refused() -> None:
    async with a_service() as service:
        for number in ("x", "-1", "1.5", "%31%30x", "9" * 40, "%D9%A3"):
            answer = await service.ask("GET", f"/api/v1/pools/default/plans/{number}")
            assert answer.status == 404, number
