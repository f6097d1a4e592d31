"""Leases kept beside the log: how replicas elect their leader."""
