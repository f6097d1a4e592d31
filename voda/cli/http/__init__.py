"""The client of the server's API, for all commands.

In reading order: `target` finds the server, `client` sends requests, `retry` repeats those that can be repeated,
`errors` reads error answers; `sse` (live events), `remote_log` and `job_logs` build on them.
"""
