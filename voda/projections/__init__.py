"""Projections fold the log into states that can be read. Pure."""
