"""The controllers of Kubernetes objects: what they are in the cluster and in the log is made the same.

In reading order: `registration` (jobs are taken in, adopted and made), `status` (what voda writes beside them: states,
Events, conditions), `sharing` (pods that ask for GPUs or parts of them), `hived` (pods with HiveD's annotations). Rule:
they know the objects; use cases know none.
"""
