"""Leases in the log's own store, by which replicas elect a leader: PostgreSQL's; that of NATS is in `jetstream`."""
