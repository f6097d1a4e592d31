"""Answers as text for a terminal of 80 columns; printed by `stdout`.

A job is in `job_text` (words and sentences), `job_details` (all of it) and `explanation`; lists are in `tables`, one
moment of a cluster in `cluster_snapshot`, a comparison in `what_if`. `times` formats instants and spans.
"""
