"""A claim takes the place of another while API server or log fail: in the end one is left, and the log is right.

Rule: whatever write fails, refused or with its answer lost, the next round goes on from what there is.
"""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.integration.memory_cluster.sharing.test_claims_in_cluster import Story, a_story, add_node, has_no_claim
from tests.kube.client import PODS
from tests.kube.memory_world import Replica
from voda.domain.errors import StoreUnavailable
from voda.events.types import ShareAssigned, ShareReleased
from voda.kubernetes_client.errors import error_of, parse_status

pytestmark = pytest.mark.virtual_time
STEPS = (
    "append share.released",
    "append share.assigned",
    "create resourceclaims",
    "delete claim",
    "patch status",
    "patch a",
)
"""The writes of a replacement, in order."""


class Failure:
    """Has a kind of write of a replica fail, `times` in a row: refused before, or after it is done."""

    def __init__(self, replica: Replica, when: str, step: str, times: int = 1) -> None:
        self.left = times
        self._when, self._step = when, step
        service = replica.service
        for owner, verb, method in (
            (service.store, "append", "append_all"),
            (service.mirror.api, "create", "create"),
            (service.mirror.api, "delete", "delete"),
            (service.mirror.api, "patch", "patch"),
        ):
            setattr(owner, method, self._failing(verb, getattr(owner, method)))

    def _failing(self, verb: str, call: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def called(*arguments: Any, **options: Any) -> Any:
            fails = self.left > 0 and _name(verb, arguments) == self._step
            self.left -= fails
            result = await call(*arguments, **options) if not fails or self._when == "after" else None
            if fails and verb == "append":
                raise StoreUnavailable("the log does not answer")
            if fails:
                code = 429 if self._when == "before" else 503
                raise error_of(f"{verb} {arguments[0]}", parse_status(code, b""), "1" if code == 429 else "")
            return result

        return called


class LogAway:
    """Has a replica's log answer nothing once a share could not be recorded, until that is over."""

    def __init__(self, replica: Replica) -> None:
        self.is_over = False
        self._is_away = False
        store = replica.service.store
        append, position = store.append_all, store.position

        async def appended(*arguments: Any) -> Any:
            if self._is_away and not self.is_over:
                raise StoreUnavailable("the log does not answer")
            try:
                return await append(*arguments)
            except StoreUnavailable:
                self._is_away = True
                raise

        async def last() -> int:
            if self._is_away and not self.is_over:
                raise StoreUnavailable("the log does not answer")
            return await position()

        store.append_all, store.position = appended, last  # type: ignore[method-assign, assignment]


def _name(verb: str, arguments: tuple[Any, ...]) -> str:
    if verb == "append":
        fact = arguments[0][0].facts[0].data
        return f"append {fact.TYPE}" if isinstance(fact, ShareAssigned | ShareReleased) else ""
    return (
        "delete claim" if verb == "delete" and "claims" in arguments[0] else f"{verb} {arguments[0].rpartition('/')[2]}"
    )


async def finish(it: Story) -> None:
    """Let the pod be placed on n2 and end, and see that nothing is left."""
    await it.until_selects("a", "n2-0")
    await it.until_recorded(a=("n2", 0, 400))
    await it.allocate("a", "n2", 0)
    await it.until_one_claim()
    await it.until_recorded(a=("n2", 0, 400))
    await it.world.client.delete(PODS, "a", "ns", grace_s=0)
    await it.until_recorded()
    await it.world.until_it_is(lambda: has_no_claim(it), what="no claim is left")


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("times", [1, 3])
async def test_replacement_of_a_claim_when_a_write_of_it_fails_goes_on(when: str, step: str, times: int) -> None:
    async with a_story({"n1": 1}) as it:
        await it.submit("a")
        await it.until_selects("a", "n1-0")
        failure = Failure(it.replica, when, step, times)
        await it.refuse("a")
        await add_node(it.world, "n2", 1)
        await finish(it)
        # After a write that was done, the next round may find nothing left to do.
        assert failure.left < times


@pytest.mark.parametrize("step", STEPS[:2])
async def test_replacement_of_a_claim_when_the_log_is_away_between_two_writes_goes_on_under_the_next_leader(
    step: str,
) -> None:
    async with a_story({"n1": 1}) as it:
        await it.submit("a")
        await it.until_selects("a", "n1-0")
        Failure(it.replica, "after", step)
        away = LogAway(it.replica)
        await it.refuse("a")
        await add_node(it.world, "n2", 1)
        leadership = it.replica.service.leadership
        await it.world.until(lambda: not leadership.is_leading, what="nobody leads")
        away.is_over = True
        await finish(it)
