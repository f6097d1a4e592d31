"""The files of the page, and logins to it."""

import re
from pathlib import Path

import pytest

from tests.service import a_service
from voda.auth.tokens import Authenticator
from voda.clock import VirtualClock
from voda.wire.logins import LoginView, SessionView


async def test_page_when_asked_then_may_run_its_own_files_alone() -> None:
    async with a_service() as service:
        answer = await service.ask("GET", "/")
        assert (answer.status, answer.headers["Content-Type"]) == (200, "text/html; charset=utf-8")
        policy = answer.headers["Content-Security-Policy"]
        assert "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'" in policy
        assert "unsafe" not in policy
        page = answer.body.decode()
        assert "<script>" not in page
        assert " style=" not in page
        named = re.findall(r'(?:src|href)="\./([^"]+)"', page)
        assert {name.rpartition(".")[2] for name in named} == {"js", "css", "svg"}
        for name in named:
            file = await service.ask("GET", f"/{name}")
            assert file.status == 200, name
            again = await service.ask("GET", f"/{name}", headers={"If-None-Match": file.headers["ETag"]})
            assert (again.status, again.body) == (304, b"")


async def test_page_when_it_has_no_such_file_says_where_it_is() -> None:
    async with a_service() as service:
        for name in ("other.js", "..%2Fx.js", "dashboard.py"):
            assert (await service.ask("GET", f"/{name}")).status == 404


async def test_page_when_the_server_has_tokens_needs_none(tmp_path: Path) -> None:
    async with a_service(access=Authenticator.open(tmp_path, VirtualClock(0.0))) as service:
        assert (await service.ask("GET", "/", headers={"Host": "gpu.example.com"})).status == 200
        assert (await service.ask("GET", "/api/v1/state")).status == 401


async def test_page_when_the_server_has_no_tokens_is_not_for_foreign_names() -> None:
    async with a_service() as service:
        assert (await service.ask("GET", "/", headers={"Host": "gpu.example.com"})).status == 403


@pytest.mark.parametrize("role", ["viewer", "user", "admin"])
async def test_login_when_used_then_the_page_may_what_its_user_may(tmp_path: Path, role: str) -> None:
    access = Authenticator.open(tmp_path, VirtualClock(1_700_000_000.0))
    token = access.add("ann", role)  # type: ignore[arg-type]
    async with a_service(access=access, page_url=lambda: "http://127.0.0.1:8470") as service:
        login = (await service.ask("POST", "/api/v1/logins", token=token)).as_a(LoginView)
        assert login.url == "http://127.0.0.1:8470"
        begun = await service.ask("POST", "/api/v1/sessions", body={"code": login.code})
        session = begun.as_a(SessionView)
        assert (session.user, session.role) == ("ann", role)
        who = await service.ask("GET", "/api/v1/whoami", token=session.token)
        assert (who.json()["user"], who.json()["role"], who.json()["found_by"]) == ("ann", role, "session")
        # Behind a proxy it has any name: what is sent with a token no other page can send.
        proxied = {"Host": "voda.example.com", "Origin": "https://voda.example.com"}
        assert (await service.ask("GET", "/api/v1/state", token=session.token, headers=proxied)).status == 200
        again = await service.ask("POST", "/api/v1/sessions", body={"code": login.code})
        assert (again.status, "used before" in again.json()["detail"]) == (401, True)
        assert (await service.ask("POST", "/api/v1/logins", token=session.token)).status == 403


async def test_login_when_there_are_no_tokens_then_needs_no_code() -> None:
    async with a_service() as service:
        assert (await service.ask("POST", "/api/v1/logins")).as_a(LoginView).code == ""
        assert (await service.ask("POST", "/api/v1/sessions", body={"code": "x"})).status == 401
