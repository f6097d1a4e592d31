"""The planner: how many GPUs each job gets, on which nodes, and why; pure.

In reading order: `decide` makes one plan, and `plan_changes` the fact that records it; `candidates` are the jobs that
it may plan, by `eligibility` (which jobs are held), `backed_off` (which come last), `node_states` (what lost, cordoned
and silent nodes have room for) and `done_replicas`; `allocation/` says how many replicas each job gets; `feasibility`
finds jobs for which the nodes have no room. `wings` are the hooks of what else a pool has: `fit/` knows what nodes take
by labels, taints and resources; `sharing/` lets one job stand in for those that share a GPU, and serves pods that ask
for parts of GPUs; `virtual_clusters/` decides in cells. `registries` puts the walk together with policies, placers and
wings, and `free_starts` starts jobs beside a plan.
"""
