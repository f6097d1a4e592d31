"""Reads the past of a log: `moment` finds a position, `replay` the state there, or a plan by its number.

`verify` makes every decision again. `explanation` says why a job runs or waits; `job_explanation` reads the log for it.
`snapshot_tables` shows a cluster as tables.
"""
