"""What there is in the cluster.

In reading order: `inventory`, composed of `nodes`, `job_objects` and `job_pods`; `observations` (what changed, for the
log); `job_annotations`; `shared_gpus` (GPUs that nodes offer, what containers ask of them, annotations),
`sharing_pods` (the pods that ask, either way); `claim_ledger`, `claimed_amounts`, and `chosen_claims` (that select
GPUs), the same by claims; `devices`, over `published/`, and `job_claims` (those of workers).
"""
