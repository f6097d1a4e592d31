"""Plans for pools with virtual clusters: every worker has cells, guaranteed by its job's virtual cluster or idle ones.

In reading order: `unused_book` (the cells that there are), `pool_jobs` (the jobs), `cell_draft` (which worker has which
cells), `plan_book` (the plan in force in cells, which follows each plan that is adopted), `recovery` (what of it can go
on, as a draft), `losses` (whose idle cells are taken back first), `guaranteed` and `opportunistic` (the two parts of a
plan), `cell_plan` (both together), `cell_reasons` (what users are told); `cell_use` (what the plan in force uses).
A GPU that jobs share is one cell (voda/planner/sharing).

Rule: these names are the door; others import nothing else from here.
"""

from voda.planner.virtual_clusters.cell_plan import CellPlanner
from voda.planner.virtual_clusters.cell_use import book_of, guaranteed_workers, workers_in_quota
from voda.planner.virtual_clusters.recovery import blocked_nodes

__all__ = ["CellPlanner", "blocked_nodes", "book_of", "guaranteed_workers", "workers_in_quota"]
