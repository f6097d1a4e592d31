"""Simulation: the real controller and reconcilers on a virtual clock and cluster.

`engine` runs a workload (`run` has its input and output) on a `cluster` whose jobs are `training`, with `failures`;
`compare` runs several policies, `metrics` and `fairness` measure, `data` finds public data sets.

Below: `workloads/` (which jobs come when), `profiles/` (how fast they really are), `report/` (pages and tables),
`whatif/` (a recorded log under another policy, and forecasts).
"""
