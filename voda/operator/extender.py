"""kube-scheduler's extender, whoever decides: HiveD's cells on the leader, or shares of GPUs on every replica.

Rule: what kube-scheduler is to show to users is in the answer's Error, where the protocol has one: of any other status
than 200 it tells no more than the number. What takes longer than kube-scheduler waits is given up.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, Generic, Protocol, TypeVar

from voda.domain.errors import InvalidInput, StoreUnavailable, VodaError
from voda.extender.wire import (
    ExtenderArgs,
    ExtenderBindingArgs,
    ExtenderBindingResult,
    ExtenderFilterResult,
    ExtenderPreemptionArgs,
    ExtenderPreemptionResult,
    T,
    read_arguments,
)

_MOST_S: Final = 4.0
"""A little less than kube-scheduler waits for by default (httpTimeout: 5s)."""


class ExtenderDecider(Protocol):
    """Decides about pods; every method raises VodaError where it cannot."""

    async def filter(self, arguments: ExtenderArgs) -> ExtenderFilterResult:
        """Return the nodes for a pod, of those named, and why it cannot be on each of the others."""

    async def preempt(self, arguments: ExtenderPreemptionArgs) -> ExtenderPreemptionResult:
        """Return which pods must leave which nodes for a pod."""

    async def bind(self, arguments: ExtenderBindingArgs) -> None:
        """Bind a pod; one that has that node already is left alone."""


D = TypeVar("D", bound=ExtenderDecider)
R = TypeVar("R")


@dataclass
class Extender(Generic[D]):
    """Its verbs, from bytes to the record that is answered."""

    decider: D

    async def filter(self, body: bytes) -> ExtenderFilterResult:
        """Return the nodes for a pod, or in `error` why that cannot be said."""
        try:
            return await self.answer(body, ExtenderArgs, self._filter)
        except VodaError as error:
            return ExtenderFilterResult(error=str(error))

    async def bind(self, body: bytes) -> ExtenderBindingResult:
        """Bind a pod, or say in `error` why it is not bound."""
        try:
            await self.answer(body, ExtenderBindingArgs, self._bind)
        except VodaError as error:
            return ExtenderBindingResult(error=str(error))
        return ExtenderBindingResult()

    async def preempt(self, body: bytes) -> ExtenderPreemptionResult:
        """Return which pods must leave; raises VodaError, for which the protocol has no field."""
        return await self.answer(body, ExtenderPreemptionArgs, self.decider.preempt)

    async def answer(self, body: bytes, kind: type[T], decide: Callable[[T], Awaitable[R]]) -> R:
        """Return what is decided about a question.

        Raises:
            VodaError: it cannot be read or answered, or not in time.
        """
        arguments, limit = read_arguments(body, kind), asyncio.timeout(_MOST_S)
        try:
            async with limit:
                return await decide(arguments)
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise StoreUnavailable(f"log or API server did not answer in {_MOST_S:g} s: try again") from error

    async def _filter(self, arguments: ExtenderArgs) -> ExtenderFilterResult:
        if arguments.nodenames is None:
            raise InvalidInput("NodeNames is null: the extender must be configured with nodeCacheCapable: true")
        return await self.decider.filter(arguments)

    async def _bind(self, arguments: ExtenderBindingArgs) -> None:
        if not all((arguments.podname, arguments.podnamespace, arguments.poduid, arguments.node)):
            raise InvalidInput("expected PodName, PodNamespace, PodUID and Node, and one of them is missing")
        await self.decider.bind(arguments)
