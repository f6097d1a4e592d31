"""The HTTP API.

In reading order: `server` puts the operations of `routes/` behind one check of tokens and roles; `operation` is how a
route is declared; `requests` reads what is sent and makes answers, `problems` turns errors into RFC 9457;
`schemas/` has the records that are answered, `presenters/` make them from the domain, `job_listing` pages jobs;
`streams` are answers that go on, `command_session` carries a command over a WebSocket; `read_your_writes` and
`origin_check` guard requests; `listener` is the socket and its time limits; `openapi` describes it all.
"""
