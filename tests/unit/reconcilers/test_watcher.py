"""The watcher writes down what the cluster shows, as long as it is the one to watch it."""

import pytest

from voda.clock import VirtualClock
from voda.domain.errors import Fenced
from voda.events.types import JobCompleted
from voda.log.memory import MemoryStore
from voda.reconcilers.watcher import Watcher


def _refuse() -> None:
    raise Fenced("another process leads")


async def test_record_when_another_watches_the_cluster_by_now_appends_nothing() -> None:
    store = MemoryStore()
    watcher = Watcher(store=store, clock=VirtualClock(), check_lead=_refuse)
    with pytest.raises(Fenced):
        await watcher.record([JobCompleted(job_id="a")])
    assert not await store.read(0, 9)
