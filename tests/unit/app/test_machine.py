"""What `voda up` refuses to be told."""

from pathlib import Path
from typing import Any

import pytest

from voda.app.machine import MachineOptions, exposure_warning, is_loopback, refuse_contradictions
from voda.domain.errors import InvalidInput


def options(**fields: Any) -> MachineOptions:
    return MachineOptions(home=Path("home"), environment={}, **fields)


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
        ({"port": 65_536}, "--port is 65536"),
        ({"ratelimit_s": -1.0}, "--ratelimit is -1"),
        ({"ratelimit_s": float("nan")}, "--ratelimit is nan"),
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
        {"port": 0, "slots": 1, "ratelimit_s": 0.0},
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
