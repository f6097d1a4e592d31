"""Leases in the log's own store, by which replicas elect their leader.

`factory` finds the one of a store: `sqlite`, `postgres` or `jetstream`; they share `record`.
"""
