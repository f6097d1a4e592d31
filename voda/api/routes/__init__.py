"""The operations of the API, one module per resource, found by their files: there is no list to edit.

A module holds a subclass of `Routes` (see voda.api.operation, with an example), which voda.api.server makes once. A
handler takes the request and the caller, and raises errors of voda.domain.errors (or voda.api.problems), which the
server turns into problems. What it needs: `query_of(request, SomeStruct)` for the query, `body_of(request, SomeStruct,
limits)` for a JSON body, `json_response(value)` for a JSON answer (all in voda.api.requests);
`request.app[SHUTTING_DOWN]` is set when the server shuts down, so that streams end; `request.app[OPERATIONS]` are the
operations of all modules.
"""
