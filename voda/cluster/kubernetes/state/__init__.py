"""What there is in the cluster.

In reading order: `inventory`, composed of `node_stock`, `job_objects` and `pod_owners`; `nodes` and `worker_pods` (what
plans see of them); `job_outcome`; `observations` (what changed, for the log); `missing_objects`; `job_annotations`;
`paths`.
"""
