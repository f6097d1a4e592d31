"""The planner: how many GPUs each job gets, on which nodes, and why; pure.

In reading order: `decide` makes one plan, and the fact that records it; `candidates` are the jobs that it may plan, by
`eligibility` (which jobs are held), `start_backoff` (which come last), `node_states` (what lost, cordoned and silent
nodes have room for) and `done_replicas`; `priority` lets higher priorities go first; `resize_cost` leaves out growths
that do not pay; `feasibility` finds jobs for which the nodes have no room; `sharing/` lets one job stand
in for those that share a GPU, and serves pods that ask for parts of GPUs. `registries` puts it together with the
policies, the placers and `virtual_clusters/`, which decides in cells where a pool has virtual clusters.
"""
