"""Answers as text for a terminal of 80 columns; printed by `terminal`.

A job is in `job_text` (words and sentences), `job_details` (all of it) and `explanation`; lists are in `tables`, one
node in `node_details`, one moment of a cluster and a
what-if in `replay`.
"""
