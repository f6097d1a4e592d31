"""A log in NATS over TLS: what is trusted, and that nothing is said in the open."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.builders import a_fact
from tests.certificates import a_certificate
from tests.jetstream_logs import ids, opened
from tests.nats import PASSWORD, NatsServer, serving
from tests.waiting import until_it_is
from voda.domain.errors import InvalidInput, StoreUnavailable
from voda.events.envelope import ANY_VERSION
from voda.log.jetstream.store import JetStreamStore
from voda.log.jetstream.transport.connection import NatsConnection
from voda.log.jetstream.transport.url import parse_url

pytestmark = [pytest.mark.nats, pytest.mark.slow]


@pytest.fixture
def cert(tmp_path: Path) -> Path:
    """The server's certificate."""
    return a_certificate(tmp_path, "IP:127.0.0.1")[0]


@pytest.fixture
def server(cert: Path) -> Iterator[NatsServer]:
    """A server that speaks TLS only."""
    key = cert.with_name("key.pem")
    with serving(more=f'tls {{ cert_file: "{cert}", key_file: "{key}" }}\n') as made:
        yield made


def secret(url: str) -> str:
    return url.replace("nats://", "tls://")


async def test_log_over_tls_is_written_and_read_and_survives_a_restart_of_the_server(
    server: NatsServer, cert: Path
) -> None:
    url = f"{secret(server.url('log'))}&ca={cert}"
    await JetStreamStore.migrate(url)
    # Whoever asks in the moment of the restart waits in vain for as long.
    async with opened(url, timeout_s=4.0) as store:
        await store.append("job.a", ANY_VERSION, [a_fact("1")])
        await asyncio.to_thread(server.nodes[0].restart)

        async def is_appended() -> bool:
            try:
                return await store.append("job.a", ANY_VERSION, [a_fact("2")]) == 2
            except StoreUnavailable:
                return False

        await until_it_is(is_appended, within_s=120)
        assert await ids(store) == ["1", "2"]


async def test_certificate_that_nobody_vouches_for_is_refused_in_one_sentence(
    server: NatsServer, tmp_path: Path
) -> None:
    url = server.url("log")
    other, _ = a_certificate(tmp_path / "other", "IP:127.0.0.1")
    for each in (url, secret(url), f"{url}&ca={other}"):
        with pytest.raises(InvalidInput, match=r"certificate is not trusted .* signed by the authority that ca=FILE"):
            await NatsConnection.open(parse_url(each))


async def test_certificate_of_another_host_is_refused(tmp_path: Path) -> None:
    cert, key = a_certificate(tmp_path, "DNS:nats.example")
    with (
        serving(more=f'tls {{ cert_file: "{cert}", key_file: "{key}" }}\n') as server,
        pytest.raises(InvalidInput, match=r"certificate is not trusted \(IP address mismatch"),
    ):
        await NatsConnection.open(parse_url(f"{secret(server.url('log'))}&ca={cert}"))


async def test_server_that_says_it_has_no_tls_hears_no_password(cert: Path) -> None:
    heard: list[bytes] = []

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # Whoever stands in between can say so of any server.
        writer.write(b'INFO {"server_id":"x","version":"2.10.0","max_payload":1048576,"auth_required":true}\r\n')
        heard.append(await reader.read())
        writer.close()

    async with await asyncio.start_server(listen, "127.0.0.1", 0) as listener:
        port = listener.sockets[0].getsockname()[1]
        for url in (
            f"tls://voda:{PASSWORD}@127.0.0.1:{port}/log",
            f"nats://voda:{PASSWORD}@127.0.0.1:{port}/log?ca={cert}",
        ):
            with pytest.raises(InvalidInput, match="does not speak TLS"):
                await NatsConnection.open(parse_url(url))

        async def both_have_ended() -> bool:
            return len(heard) == 2

        await until_it_is(both_have_ended, within_s=60)
    assert heard == [b"", b""]
