"""The options of `voda up`, and the check that they do not contradict each other.

Rule: values only; the first contradiction is refused in one sentence.
"""

from collections.abc import Mapping
from ipaddress import ip_address
from pathlib import Path

from msgspec import Struct

from voda.domain.errors import InvalidInput

DEFAULT_PORT = 8470


class MachineOptions(Struct, frozen=True, kw_only=True):
    """How the service runs on one machine."""

    home: Path
    environment: Mapping[str, str]
    """Of the processes that it starts; their own variables are laid over it."""
    log: str = ""
    """Path or URL of the log; by default voda.db in `home`."""
    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    """0 = any that is free."""
    api_url: str = ""
    """Where jobs report; empty: to the process that started them."""
    slots: int | None = None
    """CPU slots where there is no GPU; by default one per core."""
    pool: str = "default"
    policy: str | None = None
    placer: str | None = None
    ratelimit_s: float | None = None
    """Settings to change at the start; None = as the log has them."""
    has_tokens: bool = True
    is_open_on_purpose: bool = False
    """Whether the operator explicitly allows listening beyond this machine without tokens."""
    tls: tuple[Path, Path] | None = None
    """Certificate and key, PEM."""
    metrics_folder: Path | None = None
    """Of CSV files that jobs write."""
    jobs_per_user: int = 1_000
    halts_on_exit: bool = False
    """Whether jobs are halted when the service ends; otherwise they train on, and the next start takes them over."""


def refuse_contradictions(options: MachineOptions) -> None:
    """Refuse options that contradict each other or are out of bounds.

    Raises:
        InvalidInput: one sentence, naming the option.
    """
    if not options.has_tokens and not is_loopback(options.host) and not options.is_open_on_purpose:
        raise InvalidInput(
            f"--host {options.host} without tokens lets everybody on the network run programs here: leave out"
            " --no-tokens, or add --open-to-everybody if that is what you want"
        )
    if options.slots is not None and not 1 <= options.slots <= 4_096:
        raise InvalidInput(f"--slots is {options.slots}, expected 1 to 4096")
    if not 0 <= options.port <= 65_535:
        raise InvalidInput(f"--port is {options.port}, expected 0 (any) to 65535")
    if options.ratelimit_s is not None and not 0 <= options.ratelimit_s <= 86_400:
        raise InvalidInput(f"--ratelimit is {options.ratelimit_s:g} s, expected 0 to 86400")


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach what listens there."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
