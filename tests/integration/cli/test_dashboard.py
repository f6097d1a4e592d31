"""`voda dashboard`, which prints where the page is and logs in whoever asks."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner
from yarl import URL

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
from voda.domain.errors import VodaError

PAGE = "http://127.0.0.1:8470"


@pytest.fixture
def with_tokens(tmp_path: Path) -> Iterator[Server]:
    access = Authenticator.open(tmp_path, VirtualClock(START))
    with served(tmp_path, access=access, page_url=lambda: PAGE) as server:
        yield server


def whom(server: Server, address: str) -> tuple[str, str]:
    """Return user and role of whoever opens an address."""
    code = URL(address).fragment.removeprefix("login=")
    begun = server.does(server.service.ask("POST", "/api/v1/sessions", body={"code": code}))
    assert begun.status == 200, begun.body
    told = msgspec.json.decode(begun.body)
    return told["user"], told["role"]


def test_dashboard_prints_an_address_that_logs_in_once(with_tokens: Server) -> None:
    printed = with_tokens.voda("dashboard", "--no-open").stdout.strip()
    assert printed.startswith(f"{PAGE}/#login=vlogin_")
    assert whom(with_tokens, printed) == ("admin", "admin")
    other = with_tokens.voda("dashboard", "--no-open").stdout.strip()
    assert other != printed


def test_dashboard_when_the_server_has_no_tokens_is_its_address(server: Server) -> None:
    assert server.voda("dashboard", "--no-open").stdout.strip() == f"{server.service.url}/"


def test_dashboard_when_there_is_no_browser_says_what_to_do(
    with_tokens: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(variable, raising=False)
    result = with_tokens.voda("dashboard")
    assert result.stdout.startswith(PAGE)
    assert "there is no browser here" in result.stderr


def test_dashboard_when_it_opens_a_browser_starts_it_with_a_file_that_others_may_not_read(
    with_tokens: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    started_with = tmp_path / "started-with"
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\nprintf %s "$*" > {started_with}\n')
    browser.chmod(0o755)
    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.setattr("webbrowser._tryorder", None)
    monkeypatch.setattr("webbrowser._browsers", {})
    monkeypatch.setenv("BROWSER", f"{browser} %s")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    printed = with_tokens.voda("dashboard").stdout.strip()
    address = URL(started_with.read_text())
    assert (address.scheme, address.fragment) == ("file", "")
    page = Path(address.path)
    assert page.stat().st_mode & 0o777 == 0o600
    assert f'content="0; url={printed}"' in page.read_text()
    assert whom(with_tokens, printed) == ("admin", "admin")


def test_dashboard_when_a_session_asks_is_told_to_use_its_token(with_tokens: Server) -> None:
    code = URL(with_tokens.voda("dashboard", "--no-open").stdout.strip()).fragment.removeprefix("login=")
    begun = with_tokens.does(with_tokens.service.ask("POST", "/api/v1/sessions", body={"code": code}))
    session = msgspec.json.decode(begun.body)["token"]
    with pytest.raises(VodaError, match="a session gives no login"):
        with_tokens.voda("dashboard", "--no-open", "--token", session)


def test_dashboard_at_the_socket_logs_in_the_account_that_asks() -> None:
    with passable_folder() as folder:
        (folder / "home").mkdir(mode=0o711)
        access = Authenticator.open(folder / "home", VirtualClock(START))
        users, ends = LocalUsers(Accounts()), asyncio.Event()
        with served(folder / "home", access=access, local_users=users, page_url=lambda: PAGE) as server:
            path = folder / "voda.sock"

            async def serve(is_up: asyncio.Event) -> None:
                app = application(server.service.backend)
                async with serving(app, "127.0.0.1", 0), serving_socket(app, path):
                    is_up.set()
                    await ends.wait()

            is_up = asyncio.Event()
            server.begins(serve(is_up))
            server.does(is_up.wait())

            def ask() -> str:
                environment = {"VODA_SERVER": f"unix://{path}", "VODA_TOKEN": "", "COLUMNS": "80"}
                return CliRunner().invoke(build_app(), ["dashboard", "--no-open"], env=environment).stdout.strip()

            assert whom(server, as_account("nobody", ask)) == ("nobody", "user")
            assert whom(server, ask())[1] == "admin"
            server.loop.call_soon_threadsafe(ends.set)
