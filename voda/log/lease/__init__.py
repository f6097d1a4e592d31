"""Leases in the log's store, by which replicas elect their leader: `sqlite`, `postgres` and `jetstream`, with `record`."""
