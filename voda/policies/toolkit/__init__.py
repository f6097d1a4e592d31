"""What policies are made of.

`order` (whose turn it is), `allocation` (ways to hand out GPUs), `estimates`, `reasons`, `parameters`; `levels`
(Tiresias' queues), `afs_priority` and `knapsack` (of the policies whose papers they implement).
"""
