"""The planner: how many GPUs each job gets, on which nodes, and why; pure.

In reading order: `decide` makes one plan, and the fact that records it; `priority` lets higher priorities go first;
`resize_cost` leaves out growths that do not pay; `feasibility` finds jobs for which the nodes have no room;
`start_backoff` lets others go before jobs that make no use of their GPUs; `virtual_clusters/` decides in cells, where a
pool has virtual clusters.
"""
