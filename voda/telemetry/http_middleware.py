"""Requests counted and timed, by route.

Rule: what is not one of our routes is counted under one name, so that no caller makes labels.
"""

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from voda.clock import stopwatch
from voda.telemetry.instruments import Metrics

_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"})


def metered(metrics: Metrics) -> Middleware:
    """Return the middleware; the outermost, so that it sees what every other made of a request."""
    requests, latency, in_progress = metrics.http_requests, metrics.http, metrics.http_in_progress

    @web.middleware
    async def measure(request: web.Request, handler: Handler) -> web.StreamResponse:
        resource = request.match_info.route.resource
        method = request.method if request.method in _METHODS else "other"
        route = resource.canonical if resource is not None else "none"
        status, is_stream, laps = "aborted", False, list[float]()
        in_progress.inc()
        try:
            with stopwatch(laps):
                response = await handler(request)
            status, is_stream = str(response.status), not isinstance(response, web.Response)
            return response
        except web.HTTPException as error:
            status = str(error.status)
            raise
        finally:
            in_progress.dec()
            requests.labels(method, route, status).inc()
            # A stream lasts as long as somebody watches it, which says nothing about us.
            if not is_stream:
                latency.labels(method, route).observe(laps[0])

    return measure
