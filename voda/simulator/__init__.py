"""Simulation: the real controller and reconcilers on a virtual clock and cluster.

`engine` runs a workload (`run` has its input and output) on a `cluster` whose jobs are `training`, with `failures`;
`compare` runs several policies, `metrics` and `fairness` measure, `data` finds public data sets.
"""
