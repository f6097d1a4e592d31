"""Projections of the log, each folded event by event (`base`).

Decisions read `live`: `cluster/`, with what `learning/` makes of reports. Users read `jobs/`. `history` and `timeline`
serve reports.
"""
