"""What nats-py raises, or swallows, is told in voda's words."""

import asyncio

import nats.errors
import pytest
from nats.js.errors import APIError

from tests.waiting import DEADLINE_S
from voda.domain.errors import ChangedMeanwhile, StoreUnavailable
from voda.log.jetstream.transport.client import is_refusal, translate_errors

PLACE = "nats://127.0.0.1/log"


async def asks_again_and_again(answer: "asyncio.Future[None]") -> None:
    for _ in range(1_000):
        try:
            async with translate_errors(PLACE):
                # As nats-py waits for what it asked for.
                try:
                    await asyncio.wait_for(answer, DEADLINE_S)  # noqa: TID251
                except ValueError as error:
                    raise ChangedMeanwhile("somebody else was faster") from error
        except (StoreUnavailable, ChangedMeanwhile):
            pass
        await asyncio.sleep(0)


@pytest.mark.parametrize("error", [None, nats.errors.TimeoutError(), ValueError()], ids=["answer", "error", "refusal"])
async def test_cancellation_when_the_answer_comes_at_the_same_moment_is_heeded(error: Exception | None) -> None:
    answer = asyncio.get_running_loop().create_future()
    asking = asyncio.create_task(asks_again_and_again(answer))
    await asyncio.sleep(0)
    if error is None:
        answer.set_result(None)
    else:
        answer.set_exception(error)
    asking.cancel()
    for _ in range(10):
        await asyncio.sleep(0)
    assert asking.cancelled()


async def test_timeout_that_ends_at_the_same_moment_is_told_as_one() -> None:
    answer = asyncio.get_running_loop().create_future()

    async def ask() -> None:
        async with translate_errors(PLACE), asyncio.timeout(0.0):
            await answer

    with pytest.raises(StoreUnavailable, match="does not answer"):
        await ask()


@pytest.mark.parametrize(
    ("error", "is_no"),
    [
        (nats.errors.TimeoutError(), False),
        (APIError(code=503, err_code=10008, description="JetStream system temporarily unavailable"), False),
        (APIError(code=400, err_code=10052, description="stream configuration update can not change it"), True),
    ],
)
async def test_answer_when_a_server_cannot_give_one_for_the_moment_is_no_refusal(
    error: Exception, *, is_no: bool
) -> None:
    with pytest.raises(StoreUnavailable) as caught:
        async with translate_errors(PLACE):
            raise error
    assert is_refusal(caught.value) == is_no
