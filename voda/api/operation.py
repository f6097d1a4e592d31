"""What the API can do: each operation is declared on the method that handles it.

    @dataclass
    class ThingRoutes(Routes):
        tag = "Things"

        journal: Journal

        @Operation("GET", "/api/v1/things/{thing}", answers=[Response(of=ThingView)])
        async def get_thing(self, request: web.Request, caller: Caller) -> web.StreamResponse:
            'Get one thing.'

The router, the check of roles and the OpenAPI document are made from these: the method's name is the operationId
(getThing), the first line of its docstring the summary.

Rule: what an operation does not declare is refused: a role, a parameter of the query, a type of body.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Final, Literal, TypeVar

from aiohttp import web
from msgspec import Struct

from voda.auth.callers import Caller, CallerRole

Handler = Callable[[web.Request, Caller], Awaitable[web.StreamResponse]]
Method = TypeVar("Method", bound=Callable[..., Awaitable[web.StreamResponse]])
Roles = frozenset[CallerRole]

PUBLIC: Final[Roles] = frozenset()
"""Anybody, without a token: the handler gets `ANONYMOUS`."""
READERS: Final[Roles] = frozenset({"admin", "user", "viewer"})
WRITERS: Final[Roles] = frozenset({"admin", "user"})
ADMINS: Final[Roles] = frozenset({"admin"})
SCHEDULERS: Final[Roles] = frozenset({"admin", "scheduler"})
"""They may send their token as the password in a URL: kube-scheduler sends an extender no other."""
ANONYMOUS: Final = Caller(user="", role="viewer")

JSON: Final = "application/json"
MERGE_PATCH: Final = "application/merge-patch+json"
YAML: Final = "application/yaml"
PROBLEM: Final = "application/problem+json"
TEXT: Final = "text/plain"


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestBody:
    """The body of a request."""

    of: type | None
    """Type of the record; None: any object (a manifest) or text."""
    media_types: Sequence[str] = (JSON,)
    description: str = ""
    is_required: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """One way in which an operation succeeds."""

    status: int = 200
    of: type | None = None
    """Type of the record; None: no body, or one without a schema (text, a manifest)."""
    media_type: str = JSON
    """Empty: no body."""
    description: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    """name -> description."""


@dataclass(frozen=True, slots=True)
class Operation:
    """One method on one path."""

    method: Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
    path: str
    """As aiohttp's router takes it: /api/v1/jobs/{job_id}."""
    description: str = ""
    roles: Roles = READERS
    query: type[Struct] | None = None
    """Its fields are the parameters of the query: their types, defaults and `Meta` (bounds, description) are theirs;
    a list may be given more than once. None: it takes none."""
    path_parameters: Mapping[str, str] = field(default_factory=dict)
    """name -> description."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Headers of the request that matter: name -> description."""
    body: RequestBody | None = None
    answers: Sequence[Response] = (Response(),)
    problems: Sequence[int] = ()
    """Statuses of its problems, beside those that follow from what it takes."""
    takes_turns: bool = False
    """Whether it keeps a core busy or reads a long piece of the log: users take turns at it (voda.api.turns)."""
    name: str = ""
    summary: str = ""
    tag: str = ""
    handler: Handler | None = None
    """None where it is declared; `Routes.operations` binds it to the resource, and takes over the resource's tag."""

    def __call__(self, handler: Method) -> Method:
        first, *others = handler.__name__.split("_")
        summary = (handler.__doc__ or "").partition("\n")[0].rstrip(".")
        declared = replace(self, name=first + "".join(map(str.title, others)), summary=summary)
        setattr(handler, _DECLARED, declared)
        return handler


_DECLARED: Final = "operation"


class Routes:
    """The operations of one resource, made once for each application of the parts that its fields name."""

    tag: ClassVar[str] = ""
    """Group in the document: Jobs, Nodes, Pools, Events, Service, Extender, Ancestor."""

    def operations(self) -> Sequence[Operation]:
        """Return the operations that are declared on methods, in their order."""
        methods = ((name, getattr(method, _DECLARED, None)) for name, method in vars(type(self)).items())
        return [
            replace(declared, tag=self.tag, handler=getattr(self, name))
            for name, declared in methods
            if declared is not None
        ]


OPERATIONS: Final[web.AppKey[Sequence[Operation]]] = web.AppKey("OPERATIONS")
SHUTTING_DOWN: Final = web.AppKey("SHUTTING_DOWN", asyncio.Event)
"""Set when the server shuts down: streams end then."""
