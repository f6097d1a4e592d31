"""Claims about finding the server and the token to show it."""

import os
import socket
import subprocess
from pathlib import Path

import msgspec
import pytest

from tests.accounts import as_account, passable_folder
from voda import config
from voda.cli.options import ServerOptions
from voda.client.errors import ServerUnreachable
from voda.client.target import target
from voda.domain.errors import InvalidInput, NotFound

HERE = "http://127.0.0.1:8470"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The data folder of a voda that runs here."""
    for variable in ("VODA_SERVER", "VODA_TOKEN", "VODA_CA"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(config, "MACHINE_SOCKET", tmp_path / "machine.sock")
    monkeypatch.setenv("VODA_HOME", str(tmp_path))
    (tmp_path / "server.json").write_bytes(msgspec.json.encode({"url": HERE, "pid": os.getpid(), "version": "0"}))
    (tmp_path / "admin.token").write_text("secret\n")
    return tmp_path


def test_server_when_none_is_named_is_the_one_that_runs_here(home: Path) -> None:
    found = target(ServerOptions())
    assert (found.url, found.token, found.is_here) == (HERE, "secret", True)


def test_server_when_none_runs_here_is_told_in_a_sentence(home: Path) -> None:
    with pytest.raises(
        NotFound, match=r"no voda is running here \(looked for .*server.json\); start one with `voda up`"
    ):
        target(ServerOptions(home=home / "elsewhere"))


def test_server_when_named_twice_is_that_of_the_option(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VODA_SERVER", "http://b:1")
    assert target(ServerOptions()).url == "http://b:1"
    assert target(ServerOptions(server="a:2/")).url == "http://a:2"


def test_token_of_this_machine_is_shown_to_no_other_server(home: Path) -> None:
    assert target(ServerOptions(server="http://10.0.0.1:8470")).token == ""
    assert target(ServerOptions(server="http://127.0.0.1:9999")).token == ""
    assert target(ServerOptions(server="http://localhost:8470")).token == "secret"


def test_token_when_named_is_shown(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VODA_TOKEN", "theirs")
    assert target(ServerOptions()).token == "theirs"
    assert target(ServerOptions(token="mine")).token == "mine"


def listening(path: Path) -> None:
    """Leave a socket at the path."""
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(path))


def test_server_that_root_runs_for_all_is_asked_at_its_socket_without_a_token(home: Path) -> None:
    listening(home / "machine.sock")
    (home / "server.json").unlink()
    found = target(ServerOptions())
    assert (found.url, found.token, found.is_here) == (f"unix://{home}/machine.sock", "", True)
    assert found.socket == str(home / "machine.sock")


def test_server_of_the_user_goes_before_the_one_that_root_runs_for_all(home: Path) -> None:
    listening(home / "machine.sock")
    assert target(ServerOptions()).url == HERE
    with pytest.raises(NotFound, match=r"looked for .*elsewhere/server.json\)"):
        target(ServerOptions(home=home / "elsewhere"))


def test_server_of_the_user_that_was_killed_leaves_the_way_to_the_one_that_root_runs_for_all(home: Path) -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    (home / "server.json").write_bytes(msgspec.json.encode({"url": HERE, "pid": ended.pid, "version": "0"}))
    with pytest.raises(ServerUnreachable, match=r"server.json does not run any more"):
        target(ServerOptions())
    listening(home / "machine.sock")
    assert target(ServerOptions()).url == f"unix://{home}/machine.sock"
    # Its port may be anybody's by now.
    assert target(ServerOptions(server=HERE)).token == ""
    with pytest.raises(ServerUnreachable):
        target(ServerOptions(home=home))


def test_server_whose_process_is_another_users_by_now_has_ended(home: Path) -> None:
    others = subprocess.Popen(["sleep", "60"], user="nobody") if os.geteuid() == 0 else None
    pid = 1 if others is None else others.pid
    try:
        (home / "server.json").write_bytes(msgspec.json.encode({"url": HERE, "pid": pid, "version": "0"}))
        with pytest.raises(ServerUnreachable):
            target(ServerOptions())
    finally:
        if others is not None:
            others.kill()
            others.wait()


def test_socket_for_all_is_asked_only_where_no_other_user_can_have_put_it(home: Path) -> None:
    (home / "server.json").unlink()
    listening(home / "machine.sock")
    home.chmod(0o777)
    with pytest.raises(NotFound):
        target(ServerOptions())


def test_server_whose_file_names_a_socket_is_asked_there_without_the_admin_token(home: Path) -> None:
    here = {"url": HERE, "pid": os.getpid(), "version": "0", "socket": "/run/here.sock"}
    (home / "server.json").write_bytes(msgspec.json.encode(here))
    found = target(ServerOptions())
    assert (found.url, found.token) == ("unix:///run/here.sock", "")
    assert target(ServerOptions(server=HERE)).token == "secret"
    assert target(ServerOptions(token="mine")).token == "mine"


def test_socket_when_named_is_asked_with_a_token_only_if_one_is_given(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = target(ServerOptions(server="unix:///run/x y.sock"))
    assert (found.socket, found.token, found.source) == ("/run/x y.sock", "", "--server")
    monkeypatch.setenv("VODA_SERVER", "unix:///b.sock")
    assert target(ServerOptions(token="mine")).socket == "/b.sock"
    assert target(ServerOptions(token="mine")).token == "mine"


@pytest.mark.parametrize("server", ["ftp://a", "http://", "http://a:b", "http://a:99999", "unix:a", "unix://a/b"])
def test_address_when_it_is_none_is_refused(home: Path, server: str) -> None:
    with pytest.raises(InvalidInput, match="not the address of a s"):
        target(ServerOptions(server=server))


def test_server_file_when_damaged_is_named(home: Path) -> None:
    (home / "server.json").write_text("{")
    with pytest.raises(InvalidInput, match=r"server.json is not what `voda up` writes"):
        target(ServerOptions())


def test_certificate_when_it_cannot_be_read_is_named(home: Path) -> None:
    with pytest.raises(InvalidInput, match=r"nothing.pem cannot be used"):
        target(ServerOptions(server="https://a", ca=home / "nothing.pem"))


def test_certificate_when_the_environment_names_one_is_used(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VODA_CA", str(home / "theirs.pem"))
    with pytest.raises(InvalidInput, match=r"theirs.pem cannot be used"):
        target(ServerOptions(server="https://a"))


def test_certificate_of_this_machine_is_trusted_of_no_other_server(home: Path) -> None:
    here = {"url": "https://127.0.0.1:8470", "certificate": str(home / "ours.pem")}
    (home / "server.json").write_bytes(msgspec.json.encode(here))
    with pytest.raises(InvalidInput, match=r"ours.pem cannot be used"):
        target(ServerOptions())
    assert target(ServerOptions(server="https://10.0.0.1:8470")).tls is not None


def test_folder_of_another_user_is_in_nobodys_way_where_a_server_is_known(home: Path) -> None:
    home.chmod(0o700)
    found = as_account("nobody", lambda: target(ServerOptions(server="unix:///a.sock")).url)
    assert found == "unix:///a.sock"
    with passable_folder() as folder, pytest.MonkeyPatch.context() as patch:
        listening(folder / "voda.sock")
        patch.setattr(config, "MACHINE_SOCKET", folder / "voda.sock")
        assert as_account("nobody", lambda: target(ServerOptions()).url) == f"unix://{folder}/voda.sock"
    with pytest.raises(AssertionError, match=r"server.json belongs to another user's voda"):
        as_account("nobody", lambda: target(ServerOptions()).url)
