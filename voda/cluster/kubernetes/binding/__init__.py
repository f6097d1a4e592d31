"""Gives worker pods their nodes."""
