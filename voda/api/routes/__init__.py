"""The operations of the API, one module per resource, found by their files: there is no list to edit.

A module holds a subclass of `Routes` (see voda.api.operation, with an example). A handler takes the request and the
caller, reads and answers with the functions of voda.api.requests, and raises errors of voda.domain.errors or
voda.api.problems, which the server turns into problems.

In reading order: `jobs` (submit, list, change, cancel, explain), `job_reports` (output and progress of jobs), `pools`
(nodes and plans too), `events`, `service` (version, health,
metrics), `openapi_docs`, `moments` (what a page draws), `compat/` (what other programs ask).
"""
