"""`voda token`: what it prints, and what it leaves in the folder."""

import json
import os
import socket
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from voda import config
from voda.auth.tokens import Authenticator
from voda.cli import build_app
from voda.clock import VirtualClock
from voda.domain.errors import AlreadyExists, InvalidInput, NotFound


def token(home: Path, *args: str) -> str:
    """Return what the command prints."""
    found = CliRunner().invoke(build_app(), ["token", *args, "--home", str(home)])
    if found.exception is not None and not isinstance(found.exception, SystemExit):
        raise found.exception
    assert found.exit_code == 0, found.output
    return found.stdout


def test_create_when_asked_prints_a_token_that_is_known(tmp_path: Path) -> None:
    home = tmp_path / "home"
    made = token(home, "create", "ada", "--role", "viewer").strip()
    who = Authenticator.open(home, VirtualClock()).identify(made)
    assert (who.user, who.role) == ("ada", "viewer")
    assert stat.S_IMODE(home.stat().st_mode) == 0o700


def test_list_when_asked_tells_names_and_no_hashes(tmp_path: Path) -> None:
    Authenticator.open(tmp_path, VirtualClock())
    assert "nobody has a token" in token(tmp_path, "list")
    token(tmp_path, "create", "ada")
    token(tmp_path, "create", "bob", "--role", "admin")
    assert token(tmp_path, "list", "-o", "name").split() == ["ada", "bob"]
    assert [sorted(row) for row in json.loads(token(tmp_path, "list", "-o", "json"))] == [
        ["created_at", "name", "role"]
    ] * 2
    assert [line.split()[:2] for line in token(tmp_path, "list").splitlines()] == [
        ["USER", "ROLE"],
        ["ada", "user"],
        ["bob", "admin"],
    ]


def test_revoke_when_done_lets_the_name_be_used_again(tmp_path: Path) -> None:
    token(tmp_path, "create", "ada")
    with pytest.raises(AlreadyExists):
        token(tmp_path, "create", "ada")
    assert "revoked" in token(tmp_path, "revoke", "ada")
    token(tmp_path, "create", "ada")
    with pytest.raises(NotFound):
        token(tmp_path, "revoke", "bob")


@pytest.mark.parametrize("command", [("list",), ("revoke", "ada")])
def test_look_when_the_folder_is_none_of_ours_leaves_no_secrets_there(tmp_path: Path, command: tuple[str, ...]) -> None:
    with pytest.raises(NotFound, match="--home"):
        token(tmp_path, *command)
    assert not list(tmp_path.iterdir())


def test_list_when_the_folder_is_not_there_makes_none(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="--home"):
        token(tmp_path / "typo", "list")
    assert not (tmp_path / "typo").exists()


def test_create_for_a_voda_of_all_users_says_where_the_name_has_no_account(tmp_path: Path) -> None:
    Authenticator.open(tmp_path, VirtualClock())
    (tmp_path / "server.json").write_text(json.dumps({"socket": str(tmp_path / "voda.sock")}))

    def said(name: str, role: str = "user") -> str:
        command = ["token", "create", name, "--role", role, "--home", str(tmp_path)]
        return CliRunner().invoke(build_app(), command).stderr

    assert "this machine has no account no-such-user: that voda refuses jobs" in said("no-such-user")
    assert f"for the voda of {tmp_path}" in (root := said("root"))
    assert "no account" not in root
    assert "no account" not in said("no-such-viewer", "viewer")


@pytest.fixture
def beside_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The data folder of a user beside the voda of root."""
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(config, "MACHINE_SOCKET", tmp_path / "voda.sock")
    home = tmp_path / "home"
    monkeypatch.setenv("VODA_HOME", str(home))
    with socket.socket(socket.AF_UNIX) as served:
        served.bind(str(tmp_path / "voda.sock"))
        yield home


@pytest.mark.parametrize("command", [("create", "ada"), ("list",), ("revoke", "ada")])
def test_token_beside_the_voda_of_root_says_who_has_its_tokens(beside_root: Path, command: tuple[str, ...]) -> None:
    with pytest.raises(InvalidInput, match=r"root's, at .*voda\.sock, .*sudo voda token create NAME.* --home .*/home$"):
        CliRunner().invoke(build_app(), ["token", *command], catch_exceptions=False, standalone_mode=False)
    assert not beside_root.exists()


def test_token_beside_the_voda_of_root_when_an_earlier_voda_of_the_user_is_gone_says_so_too(beside_root: Path) -> None:
    token(beside_root, "create", "ada")
    ended = subprocess.Popen(["true"])
    ended.wait()
    for server in ({}, {"url": "http://127.0.0.1:8470", "pid": ended.pid}):
        (beside_root / "server.json").write_text(json.dumps(server))
        with pytest.raises(InvalidInput, match="root's"):
            CliRunner().invoke(build_app(), ["token", "create", "bob"], catch_exceptions=False, standalone_mode=False)
    (beside_root / "server.json").write_text(json.dumps({"url": "http://127.0.0.1:8470", "pid": os.getpid()}))
    made = CliRunner().invoke(build_app(), ["token", "create", "bob"])
    assert made.exit_code == 0
