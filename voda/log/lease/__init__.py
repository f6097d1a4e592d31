"""Leases in the log's own store, by which replicas elect a leader: `record`; `sqlite`, `postgres`, `jetstream`."""
