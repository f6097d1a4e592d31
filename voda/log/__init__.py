"""The event log: the ports (store, durable_store), what all stores share (append_plan, group_commit, tail), the stores
(memory, sql, sqlite, postgres, jetstream), a wrapper (instrumented_store), leases, archives, and the factory.
"""
