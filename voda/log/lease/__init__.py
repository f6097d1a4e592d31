"""Leases in the log's own store, by which replicas elect their leader: factory, record, sqlite, postgres, jetstream."""
