"""`voda whoami`, over TCP and at a socket, as real accounts."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from tests.accounts import as_account, passable_folder
from tests.served import Server, served
from tests.service import START
from voda.accounts import Accounts
from voda.api.listener import serving, serving_socket
from voda.api.server import application
from voda.auth.local_users import LocalUsers
from voda.auth.tokens import Authenticator
from voda.cli import build_app
from voda.clock import VirtualClock


@pytest.fixture
def socket() -> Iterator[Path]:
    """A socket at which a server with tokens tells users by their accounts."""
    with passable_folder() as folder:
        (folder / "home").mkdir(mode=0o711)
        access = Authenticator.open(folder / "home", VirtualClock(START))
        users, ends = LocalUsers(Accounts()), asyncio.Event()
        with served(folder / "home", access=access, local_users=users) as server:
            path = folder / "voda.sock"

            async def serve(is_up: asyncio.Event) -> None:
                app = application(server.service.backend)
                async with serving(app, "127.0.0.1", 0), serving_socket(app, path):
                    is_up.set()
                    await ends.wait()

            is_up = asyncio.Event()
            server.begins(serve(is_up))
            server.does(is_up.wait())
            yield path
            server.loop.call_soon_threadsafe(ends.set)


def voda(*arguments: str, socket: Path) -> str:
    """Return what a command prints that asks at the socket."""
    environment = {"VODA_SERVER": f"unix://{socket}", "VODA_TOKEN": "", "COLUMNS": "80"}
    result = CliRunner().invoke(build_app(), [*arguments], env=environment)
    return result.stdout if result.exit_code == 0 else f"{result.exception}{result.output}"


def test_whoami_tells_who_asks_how_the_server_knows_and_which_server(server: Server) -> None:
    url = server.service.url
    assert server.voda("whoami").stdout == (
        "user    admin\n"
        "role    admin\n"
        "known   not at all: it runs without tokens, and everybody is admin\n"
        f"server  {url} (from {server.home / 'server.json'})\n"
    )
    assert msgspec.json.decode(server.voda("whoami", "-o", "json").stdout) == {
        "user": "admin",
        "role": "admin",
        "job_id": "",
        "found_by": "no tokens",
        "warning": "",
        "server": url,
        "server_from": str(server.home / "server.json"),
    }
    assert server.voda("whoami", "-o", "name").stdout == "admin\n"


def test_whoami_tells_what_is_wrong_with_a_server_that_works(tmp_path: Path) -> None:
    with served(tmp_path, health_warning=lambda: "the clock is 2d ahead") as server:
        assert server.voda("whoami").stdout.splitlines()[-1] == "warning the clock is 2d ahead"


def test_command_line_of_a_user_of_this_machine_needs_nothing_but_the_socket(socket: Path) -> None:
    # Once here, so that the other user need not read the modules.
    assert voda("whoami", "-o", "name", socket=socket) == "root\n"
    assert voda("get", socket=socket) != ""
    assert as_account("daemon", lambda: voda("whoami", socket=socket)) == (
        "user    daemon\n"
        "role    user\n"
        "known   by the account of this process (socket)\n"
        f"server  unix://{socket} (from VODA_SERVER)\n"
    )
    assert as_account("daemon", lambda: voda("get", socket=socket)).startswith("NAME ")
    (home := socket.parent / "other").mkdir(mode=0o711)
    (home / "server.json").write_bytes(msgspec.json.encode({"url": "http://127.0.0.1:1", "socket": str(socket)}))
    (home / "admin.token").touch(mode=0o600)
    whom = ("whoami", "-o", "name", "--home", str(home))
    assert as_account("daemon", lambda: voda(*whom, socket=home / "none")) == "daemon\n"


def test_command_line_when_nobody_listens_at_the_socket_says_so(tmp_path: Path) -> None:
    said = voda("whoami", socket=tmp_path / "voda.sock")
    assert f"unix://{tmp_path}/voda.sock (from VODA_SERVER) cannot be reached: No such file or directory" in said
    assert "is `voda up` running?" in said
