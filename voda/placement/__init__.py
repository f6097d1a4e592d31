"""Placement decides on which node each worker sits. One file each, found by file; see base.py."""
