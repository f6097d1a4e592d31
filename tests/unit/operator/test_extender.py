"""kube-scheduler's extender whoever decides: every error is in the answer, and nobody waits longer than it does."""

import asyncio

import msgspec
import pytest

from voda.domain.errors import StoreUnavailable, VodaError
from voda.extender.wire import (
    ExtenderArgs,
    ExtenderBindingArgs,
    ExtenderFilterResult,
    ExtenderPreemptionArgs,
    ExtenderPreemptionResult,
)
from voda.operator.extender import Extender

FILTER = msgspec.json.encode({"Pod": {}, "NodeNames": ["n1"]})
BINDING = {"PodName": "p", "PodNamespace": "ns", "PodUID": "u", "Node": "n1"}
BIND = msgspec.json.encode(BINDING)


class Decider:
    """Takes every node and binds every pod, after a while, or fails."""

    def __init__(self, error: Exception | None = None, takes_s: float = 0.0) -> None:
        self.error = error
        self.takes_s = takes_s

    async def filter(self, arguments: ExtenderArgs) -> ExtenderFilterResult:
        await self._decide()
        return ExtenderFilterResult(node_names=arguments.names)

    async def preempt(self, arguments: ExtenderPreemptionArgs) -> ExtenderPreemptionResult:
        await self._decide()
        return ExtenderPreemptionResult()

    async def bind(self, arguments: ExtenderBindingArgs) -> None:
        await self._decide()

    async def _decide(self) -> None:
        await asyncio.sleep(self.takes_s)
        if self.error is not None:
            raise self.error


async def test_what_the_decider_says_is_answered() -> None:
    extender = Extender(Decider())
    assert await extender.filter(FILTER) == ExtenderFilterResult(node_names=("n1",))
    assert (await extender.bind(BIND)).error == ""


@pytest.mark.parametrize("missing", BINDING)
async def test_binding_without_one_of_its_names_is_refused(missing: str) -> None:
    body = msgspec.json.encode({name: value for name, value in BINDING.items() if name != missing})
    assert "one of them is missing" in (await Extender(Decider()).bind(body)).error


async def test_question_that_cannot_be_read_has_the_reason_as_error() -> None:
    extender = Extender(Decider())
    assert "not JSON" in (await extender.filter(b"")).error
    assert "nodeCacheCapable: true" in (await extender.filter(b'{"NodeNames": null}')).error


@pytest.mark.virtual_time
@pytest.mark.parametrize(
    ("decider", "sentence"),
    [
        (Decider(StoreUnavailable("the log is away")), "the log is away"),
        (Decider(takes_s=60.0), "log or API server did not answer in 4 s: try again"),
    ],
)
async def test_decision_that_fails_or_takes_longer_than_kube_scheduler_waits_is_answered_with_why(
    decider: Decider, sentence: str
) -> None:
    extender, loop = Extender(decider), asyncio.get_running_loop()
    began_at = loop.time()
    assert (await extender.filter(FILTER)).error == sentence
    assert (await extender.bind(BIND)).error == sentence
    assert loop.time() - began_at < 9.0
    with pytest.raises(VodaError, match=sentence):
        await extender.preempt(b"{}")


async def test_timeout_of_the_decider_itself_is_not_taken_for_kube_schedulers() -> None:
    with pytest.raises(TimeoutError, match="of its own"):
        await Extender(Decider(TimeoutError("of its own"))).filter(FILTER)
