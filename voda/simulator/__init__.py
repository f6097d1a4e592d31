"""Simulation: the real controller and reconcilers on a virtual clock and cluster.

`engine` runs a `workload` on a `cluster` whose jobs are `training`, with `failures`; `compare` runs several policies,
`metrics` measures them, `data` finds public data sets.

Below: `workloads/` (workloads by name), `report/` (pages and tables), `whatif/` (a recorded log under another policy,
and forecasts), `virtual_clusters/` (what sharing costs and gains each of them).
"""
