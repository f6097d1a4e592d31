"""What the monitoring of a NATS server tells is believed; what it does not tell yet is not taken for a refusal."""

import pytest
from aiohttp import web

from tests.nats import NatsServer
from voda.events.jetstream.store import JetStreamStore
from voda.events.opening import open_store

pytestmark = pytest.mark.nats


async def test_server_when_it_has_just_started_and_tells_no_settings_is_taken(
    nats_server: NatsServer, caplog: pytest.LogCaptureFixture
) -> None:
    async def varz(_request: web.Request) -> web.Response:
        return web.json_response({"jetstream": {}})

    app = web.Application()
    app.router.add_get("/varz", varz)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        url = nats_server.url().partition("&monitor")[0]
        await JetStreamStore.migrate(url)
        await (await open_store(f"{url}&monitor=http://127.0.0.1:{runner.addresses[0][1]}")).close()
    finally:
        await runner.cleanup()
    assert "does not tell sync_interval yet" in caplog.text
