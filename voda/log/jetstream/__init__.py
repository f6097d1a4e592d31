"""A log in NATS JetStream: events as messages of a stream.

In reading order: `messages`, `state` and `index` (all pure), `marks` (records beside the stream), `synced_log` (state
and stream in step), `reader`, `writer`, `bounds`, `settings`, and the `store` over them; `transport/` is the way to
the servers.
"""
