"""Deterministic simulation tests: the whole control plane on one event loop, virtual time and drawn chance."""
