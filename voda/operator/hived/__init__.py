"""HiveD's scheduler extender as a use case: pods with its annotations get their cells from the book that plans use.

In reading order: `pods` (the port to the cluster's pods), `pool_book` (the cells of one pool, kept level with the log),
`pod_scheduler` (filter, preempt and bind; what changes is recorded), `pod_watch` (pods that are gone, or were bound
before).
"""
