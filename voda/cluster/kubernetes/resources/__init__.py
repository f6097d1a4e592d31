"""Kubernetes objects as trimmed records, quantities, well-known names; pure."""
