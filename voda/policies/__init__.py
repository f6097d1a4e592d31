"""Policies decide how many replicas each job gets. One file each, found by file; see base.py and registry.py."""
