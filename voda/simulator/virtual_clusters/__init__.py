"""What sharing costs and gains each virtual cluster, against a private cluster of its quota.

In reading order: `rigid` (jobs that take what they asked for, on whole nodes), `sharing_rules` (other rules than the
planner's), `modes` (the clusters that are simulated), `lending` (what was lent and lost, from the log), `experiment`
(all of it, and the figures), `report`, `pictures` and `page`.
"""
