"""The log: the port (store.py), its stores, leases, and the tools that copy, archive and verify a log."""
