"""Claims about finding the server and the token to show it."""

from pathlib import Path

import msgspec
import pytest

from voda.cli.options import ServerOptions
from voda.client.target import target
from voda.domain.errors import InvalidInput, NotFound

HERE = "http://127.0.0.1:8470"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The data folder of a voda that runs here."""
    for variable in ("VODA_SERVER", "VODA_TOKEN", "VODA_CA"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("VODA_HOME", str(tmp_path))
    (tmp_path / "server.json").write_bytes(msgspec.json.encode({"url": HERE, "pid": 1, "version": "0"}))
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


@pytest.mark.parametrize("server", ["ftp://a", "http://", "http://a:b", "http://a:99999"])
def test_address_when_it_is_none_is_refused(home: Path, server: str) -> None:
    with pytest.raises(InvalidInput, match="not the address of a server"):
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
