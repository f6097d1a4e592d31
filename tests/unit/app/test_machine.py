"""What `voda up` refuses to be told."""

import os
from pathlib import Path
from typing import Any

import pytest

from voda import config
from voda.app.machine import (
    MachineOptions,
    exposure_warning,
    is_loopback,
    pids_line,
    refuse_contradictions,
    socket_path,
    users_line,
)
from voda.domain.errors import InvalidInput


def options(**fields: Any) -> MachineOptions:
    return MachineOptions(**{"home": Path("home"), "environment": {}, **fields})


def refusal(fields: dict[str, Any]) -> str:
    """Return why such options are refused; empty where they are not."""
    try:
        refuse_contradictions(options(**fields))
    except InvalidInput as error:
        return str(error)
    return ""


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost", "127.9.9.9"])
def test_host_when_only_this_machine_reaches_it_is_loopback(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "login-1", "localhost.example", ""])
def test_host_when_others_may_reach_it_is_no_loopback(host: str) -> None:
    assert not is_loopback(host)


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"host": "0.0.0.0", "has_tokens": False}, "--open-to-everybody"),
        ({"slots": 0}, "--slots is 0"),
        ({"slots": 5000}, "--slots is 5000"),
        ({"jobs_per_user": 0}, "--jobs-per-user is 0, expected 1 or more"),
        ({"log_bytes_per_user": -1}, "--log-bytes-per-user is -1, expected 0"),
        ({"live_bytes_per_user": -1}, "--live-bytes-per-user is -1, expected 0"),
        ({"port": 65_536}, "--port is 65536"),
        ({"socket": Path("/run/x.sock")}, "--socket /run/x.sock is for all users"),
        ({"is_multi_user": True, "has_tokens": False}, "--no-tokens makes every user admin"),
    ],
)
def test_options_when_they_cannot_be_meant_are_refused_by_name(fields: dict[str, Any], named: str) -> None:
    assert named in refusal(fields)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"host": "0.0.0.0"},
        {"has_tokens": False},
        {"host": "0.0.0.0", "has_tokens": False, "is_open_on_purpose": True},
        {"port": 0, "slots": 1, "settings": {"ratelimit_s": 0.0}},
        {"is_multi_user": True, "socket": Path("/run/x.sock")},
    ],
)
def test_options_when_they_can_be_meant_pass(fields: dict[str, Any]) -> None:
    assert refusal(fields) == ""


@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.1", "login-1"])
def test_host_when_others_may_reach_it_without_tls_is_warned_of(host: str) -> None:
    assert exposure_warning(host, has_tls=False).startswith(f"warning: --host {host} without TLS")
    assert exposure_warning(host, has_tls=True) == ""


def test_host_when_only_this_machine_reaches_it_needs_no_tls() -> None:
    assert exposure_warning("127.0.0.1", has_tls=False) == ""


def test_socket_is_the_named_one_else_that_of_the_machine_or_in_the_folder() -> None:
    assert socket_path(options()) is None
    assert socket_path(options(is_multi_user=True, socket=Path("/a.sock"))) == Path("/a.sock")
    assert socket_path(options(is_multi_user=True, home=config.MACHINE_HOME)) == Path("/run/voda/voda.sock")
    assert socket_path(options(is_multi_user=True, home=Path("/data"))) == Path("/data/voda.sock")
    assert socket_path(options(is_multi_user=True, home=Path("/" + "x" * 120))) is None


@pytest.mark.parametrize(
    ("fields", "uid", "line"),
    [
        (
            {},
            1000,
            "single-user: all jobs run as you, with an admin's rights; started as root, voda keeps users apart",
        ),
        (
            {},
            0,
            "single-user: all jobs run as root, with an admin's rights; started without --single-user, voda keeps"
            " users apart",
        ),
        ({"has_tokens": False}, 1000, "single-user: all jobs run as you, and anybody who reaches the port is admin"),
        (
            {"is_multi_user": True, "socket": Path("/a.sock")},
            0,
            "multi-user: jobs run as their users, who ask without a token at /a.sock",
        ),
        (
            {"is_multi_user": True, "home": Path("/" + "x" * 120)},
            0,
            f"multi-user: jobs run as their users; /{'x' * 120}/voda.sock is too long for a socket: see --socket",
        ),
    ],
)
def test_start_says_in_a_line_whose_rights_jobs_have(
    monkeypatch: pytest.MonkeyPatch, fields: dict[str, Any], uid: int, line: str
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: uid)
    assert users_line(options(**fields)) == line


@pytest.mark.parametrize(
    ("limit", "most", "small_enough"),
    [(16_384, 32_768, 12_288), (0, 32_768, 12_288), (12_288, 32_768, None), (16_384, 4_194_304, None)],
)
def test_processes_of_all_replicas_that_may_be_all_of_the_machine_are_told(
    limit: int, most: int, small_enough: int | None
) -> None:
    told = pids_line(limit, 2, most)
    assert ([f"--pids-limit {small_enough}," in line for line in told]) == ([] if small_enough is None else [True])
    if small_enough is not None:
        assert pids_line(small_enough, 2, most) == []
