"""Projections of the log, each folded event by event (`base`).

Decisions read `live`, which has `learning` (with `scaling`, `measurements`). Users read `job_registry` (with
`job_record`, `job_names`). `history` and `timeline` serve reports. `job_changes` and `pool_changes` are shared.
"""
