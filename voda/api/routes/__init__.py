"""One module per resource, found by its file: there is no registry to edit.

A module here that does not begin with `_` has

    def routes(backend: Backend) -> Sequence[Operation]:
        return [Operation(method="GET", path="/api/v1/things/{thing}", handler=..., ...)]

which `voda.api.server.application` calls once. The operations it returns are the whole truth of the module: the
router, the check of roles and /openapi.json are made from them. A handler takes the request and who asks, and
raises errors of voda.domain.errors (or voda.api.problems), which the server turns into problems.

    async def get(request: web.Request, who: Who) -> web.StreamResponse: ...

What it needs: `query_of(request, SomeStruct)` for the query, `body_of(request, SomeStruct, limits)` for a JSON
body, `answered(value)` for a JSON answer (all in voda.api.requests); `request.app[ENDING]` is set when the server
shuts down, so that streams end; `request.app[OPERATIONS]` are the operations of all modules.
"""
