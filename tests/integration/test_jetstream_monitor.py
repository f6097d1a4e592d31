"""What the monitoring of a NATS server tells is believed; what it does not tell yet is not taken for a refusal."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from tests.nats import NatsServer
from voda.domain.errors import InvalidInput
from voda.log.factory import open_store
from voda.log.jetstream.store import JetStreamStore

pytestmark = pytest.mark.nats


@asynccontextmanager
async def telling(settings: Mapping[str, object]) -> AsyncIterator[str]:
    """Yield the URL of a monitoring that tells these settings of JetStream."""

    async def varz(_request: web.Request) -> web.Response:
        return web.json_response({"jetstream": settings})

    app = web.Application()
    app.router.add_get("/varz", varz)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def test_server_when_it_has_just_started_and_tells_no_settings_is_taken(
    nats_server: NatsServer, caplog: pytest.LogCaptureFixture
) -> None:
    url = nats_server.url().partition("&monitor")[0]
    await JetStreamStore.migrate(url)
    async with telling({}) as monitor:
        await (await open_store(f"{url}&monitor={monitor}")).close()
    assert "does not report sync_interval yet" in caplog.text


async def test_migration_on_a_server_that_answers_before_it_writes_says_so_and_makes_the_log(
    nats_server: NatsServer, caplog: pytest.LogCaptureFixture
) -> None:
    url = nats_server.url().partition("&monitor")[0]
    async with telling({"config": {"sync_interval": 120e9}}) as monitor:
        await JetStreamStore.migrate(f"{url}&monitor={monitor}")
        (said,) = caplog.messages
        assert "writes to the disk only every 120 s, so a power cut loses events" in said
        with pytest.raises(InvalidInput, match="only every 120 s"):
            await open_store(f"{url}&monitor={monitor}")
        await (await open_store(f"{url}&monitor={monitor}&sync=any")).close()


async def test_migration_when_nobody_can_see_whether_the_server_writes_says_so(
    nats_server: NatsServer, caplog: pytest.LogCaptureFixture
) -> None:
    url = nats_server.url()
    await JetStreamStore.migrate(url)
    assert caplog.messages == []
    await JetStreamStore.migrate(url.partition("&monitor")[0])
    assert "it is not known whether the servers write to the disk" in caplog.text
