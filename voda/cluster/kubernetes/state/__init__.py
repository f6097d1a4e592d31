"""What there is in the cluster.

In reading order: `inventory`, composed of `nodes`, `job_objects` and `job_pods`; `observations` (what changed, for the
log); `job_annotations`; `shared_gpus` (cards that nodes offer, what containers ask of them, annotations),
`sharing_pods` (the pods that ask, either way); `shared_cards`, `claim_requests`, and `chosen_claims` (that select
cards), the same by claims; `job_claims` (those of workers).
"""
