"""Logins to the page, as they travel over HTTP."""

from typing import Annotated

from msgspec import Meta

from voda.wire.base import Instant, View


class LoginView(View, frozen=True, kw_only=True):
    """A login for whoever asked."""

    code: Annotated[str, Meta(description="Good once: `/#login=CODE`; empty: this server runs without tokens.")] = ""
    ends_at: Instant | None = None
    url: Annotated[str, Meta(description="Where the page is, as its own machine names it; empty: where you asked.")] = (
        ""
    )


class LoginCode(View, frozen=True, kw_only=True):
    """What begins a session."""

    code: Annotated[str, Meta(max_length=2_000)]


class SessionView(View, frozen=True, kw_only=True):
    """A session of the page."""

    token: Annotated[str, Meta(description="Sent as a bearer token.")]
    user: str
    role: str
    ends_at: Instant
