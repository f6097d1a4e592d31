"""What the API can do, one record per method and path: the router and the OpenAPI document are made from these.

Rule: what a record does not say is refused: a role, a parameter of the query, a type of body.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from aiohttp import web
from msgspec import Struct

from voda.auth.callers import Caller

Handler = Callable[[web.Request, Caller], Awaitable[web.StreamResponse]]
Role = Literal["admin", "user", "viewer", "job"]
Roles = frozenset[Role]

PUBLIC: Final[Roles] = frozenset()
"""Anybody, without a token: the handler gets `NOBODY`."""
READERS: Final[Roles] = frozenset({"admin", "user", "viewer"})
WRITERS: Final[Roles] = frozenset({"admin", "user"})
ADMINS: Final[Roles] = frozenset({"admin"})
ANONYMOUS: Final = Caller(user="", role="viewer")

JSON: Final = "application/json"
YAML: Final = "application/yaml"
PROBLEM: Final = "application/problem+json"
TEXT: Final = "text/plain"


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestBody:
    """What is sent along."""

    of: type | None
    """A record of voda.api.schemas; None: any object (a manifest) or text."""
    media_types: Sequence[str] = (JSON,)
    description: str = ""
    is_required: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """One way in which it ends well."""

    status: int = 200
    of: type | None = None
    """A record of voda.api.schemas; None: no body, or one without a schema (text, a manifest)."""
    media_type: str = JSON
    """Empty: no body."""
    description: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    """name -> description."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One method on one path."""

    method: Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
    path: str
    """As aiohttp's router takes it: /api/v1/jobs/{job_id}."""
    handler: Handler
    name: str
    """Unique: the operationId."""
    summary: str
    """One line."""
    description: str = ""
    tag: str = ""
    """Group in the document: Jobs, Nodes, Pools, Events, Service, Ancestor."""
    roles: Roles = READERS
    query: type[Struct] | None = None
    """Its fields are the parameters of the query: their types, defaults and `Meta` (bounds, description) are theirs;
    a list may be given more than once. None: it takes none."""
    path_parameters: Mapping[str, str] = field(default_factory=dict)
    """name -> description."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Headers of the request that it heeds: name -> description."""
    body: RequestBody | None = None
    answers: Sequence[Response] = (Response(),)
    problems: Sequence[int] = ()
    """Statuses of its problems, beside 401, 403 and 422, which every operation with a token may have."""


OPERATIONS: Final = web.AppKey("OPERATIONS", Sequence[Operation])
"""Of all modules, in the application."""
SHUTTING_DOWN: Final = web.AppKey("ENDING", asyncio.Event)
"""Set when the server shuts down: streams end then."""
