"""Makes the web application: the operations of all routes behind one check of tokens and roles.

Rule: a handler runs only for callers whose role its operation names.
"""

import asyncio
import base64
from collections.abc import Sequence
from contextlib import nullcontext
from inspect import signature
from typing import Final

from aiohttp import hdrs, web
from aiohttp.typedefs import Handler, Middleware

from voda.api import routes
from voda.api.admission import CALLER, SHARES, CallerShares
from voda.api.backend import Backend
from voda.api.listener import holding_connection, local_peer, mark_busy
from voda.api.operation import ANONYMOUS, OPERATIONS, PUBLIC, SHUTTING_DOWN, Operation, Routes
from voda.api.origin_check import refuse_foreign_origin
from voda.api.problems import problems
from voda.api.read_your_writes import set_position, takes_position, wait_for_position
from voda.api.turns import TURNS, Turns
from voda.auth.callers import Caller
from voda.clock import stopwatch
from voda.domain.errors import InvalidField, NotAllowed, Unauthorized
from voda.domain.plugins import classes_in
from voda.metrics import HTTP_DURATION, HTTP_IN_PROGRESS, HTTP_REQUESTS, Telemetry

_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"})


def application(backend: Backend) -> web.Application:
    """Return the web application with the operations of all modules in voda.api.routes."""
    middlewares = (measured(backend.telemetry), mark_busy, problems(backend.journal.clock.new_id))
    app = web.Application(middlewares=middlewares, client_max_size=backend.limits.body_bytes)
    app[OPERATIONS] = operations(backend)
    app[SHUTTING_DOWN] = asyncio.Event()
    app[SHARES] = CallerShares(backend.limits)
    app[TURNS] = Turns()
    app.on_shutdown.append(_end_streams)
    for operation in app[OPERATIONS]:
        handler = _with_checks(operation, backend)
        app.router.add_route(operation.method, operation.path, handler)
        if operation.method == "GET":
            # RFC 9110: the same without its body; proxies and watchdogs use it.
            app.router.add_route("HEAD", operation.path, handler)
    return app


def operations(backend: Backend) -> Sequence[Operation]:
    """Return the operations of all modules, in the order of their names; none is called as another."""
    found: dict[str, Operation] = {}
    for resource in classes_in(routes, nested=True):
        if issubclass(resource, Routes):
            made = resource(**{part: getattr(backend, part) for part in signature(resource).parameters})
            for operation in made.operations():
                if found.setdefault(operation.name, operation) is not operation:
                    raise ValueError(f"two operations are called {operation.name}")
    return tuple(found.values())


def _with_checks(operation: Operation, backend: Backend) -> Handler:
    """Return the operation's handler behind the checks that all operations share."""
    handler, roles, takes_no_query = operation.handler, operation.roles, operation.query is None
    assert handler is not None, "Routes.operations binds it"
    can_wait, is_read = takes_position(operation), operation.method == "GET"
    takes_password = "scheduler" in roles

    async def handle(request: web.Request) -> web.StreamResponse:
        if roles is PUBLIC:
            if not backend.access.has_tokens:
                refuse_foreign_origin(request)
            return await handler(request, ANONYMOUS)
        caller = request[CALLER] = await _caller(request, backend, takes_password=takes_password)
        shares = request.app[SHARES]
        with holding_connection(request, caller), shares.request(caller, _owner(backend, caller)):
            return await handle_of(request, caller)

    async def handle_of(request: web.Request, caller: Caller) -> web.StreamResponse:
        if caller.role not in roles:
            raise NotAllowed(
                f"the role {caller.role} does not allow this ({operation.summary.lower()}), expected one of"
                f" {', '.join(sorted(roles))}"
            )
        if caller.found_by in ("socket", "no tokens"):
            refuse_foreign_origin(request)
        if can_wait and request.rel_url.raw_query_string:
            request = await wait_for_position(request, backend.journal)
        if takes_no_query and request.rel_url.raw_query_string:
            name = next(iter(request.query), request.rel_url.raw_query_string)[:80]
            raise InvalidField(name, f"the query has {name!r}, but {operation.path} takes none")
        before = backend.journal.view.position
        async with request.app[TURNS].turn(caller.user) if operation.takes_turns else nullcontext():
            response = await handler(request, caller)
        # A read may show the state before it began to wait for something.
        set_position(response, before if is_read else backend.journal.view.position)
        return response

    return handle


async def _caller(request: web.Request, backend: Backend, *, takes_password: bool) -> Caller:
    """Return who asks: whose token was sent, over whatever way; else, over the Unix socket, whose process it is.

    Who began a session at the socket may in it what the socket would let them now.
    """
    token, peer = _token(request, takes_password=takes_password), local_peer(request)
    if token is None and peer is not None and backend.local_users is not None:
        return await backend.local_users.identify(peer)
    caller = backend.access.identify(token)
    if caller.found_by == "session" and backend.local_users is not None and backend.access.is_of_socket(token):
        return await backend.local_users.as_now(caller)
    return caller


def _owner(backend: Backend, caller: Caller) -> str:
    """Return the user whose job asks; empty where no job does, or it is live no more."""
    job = backend.journal.view.cluster.job(caller.job_id) if caller.job_id else None
    return job.spec.user if job is not None else ""


def _token(request: web.Request, *, takes_password: bool) -> str | None:
    if (shown := request.headers.get(hdrs.AUTHORIZATION)) is None:
        return None
    scheme, _, token = shown.partition(" ")
    if takes_password and scheme.lower() == "basic":
        return _password(shown)
    if scheme.lower() != "bearer":
        raise Unauthorized("the header Authorization is not a bearer token, expected `Authorization: Bearer TOKEN`")
    return token.strip()


def _password(shown: str) -> str:
    """Return the password of a header Authorization: Basic; a browser has none, for it is never asked for one."""
    try:
        return base64.b64decode(shown.partition(" ")[2], validate=True).decode().partition(":")[2]
    except ValueError as error:
        raise Unauthorized("the header Authorization cannot be read, expected http://NAME:TOKEN@... as URL") from error


def measured(telemetry: Telemetry) -> Middleware:
    """Return the middleware that counts and times requests by route; the outermost, so that it sees every answer.

    A request of a route or method that is not one of ours is counted under one name, so that no caller makes labels.
    """
    under_way = 0

    @web.middleware
    async def measure(request: web.Request, handler: Handler) -> web.StreamResponse:
        nonlocal under_way
        resource = request.match_info.route.resource
        route = resource.canonical if resource is not None else "none"
        labels = request.method if request.method in _METHODS else "other", route
        status, is_stream, laps = "aborted", False, list[float]()
        under_way += 1
        telemetry.set(HTTP_IN_PROGRESS, under_way)
        try:
            with stopwatch(laps):
                response = await handler(request)
            status, is_stream = str(response.status), not isinstance(response, web.Response)
            return response
        except web.HTTPException as error:
            status = str(error.status)
            raise
        finally:
            under_way -= 1
            telemetry.set(HTTP_IN_PROGRESS, under_way)
            telemetry.count(HTTP_REQUESTS, *labels, status)
            # A stream lasts as long as somebody reads it, which says nothing about voda.
            if not is_stream:
                telemetry.observe(HTTP_DURATION, laps[0], *labels)

    return measure


async def _end_streams(app: web.Application) -> None:
    app[SHUTTING_DOWN].set()
