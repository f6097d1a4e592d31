"""Which nodes take a job's workers, and how many, known before a plan is made.

`node_rules` is the hook of a decision. `filters` is what kube-scheduler says of a pod's labels, taints and affinity,
`marked_nodes` asks it once of nodes that are alike; `rooms` counts resources; `node_fit` puts both together for a whole
pool, and keeps it from one decision to the next; `confinement` bounds what a policy gives to jobs that only
some nodes take; `bound_plan` has the last word where there are such jobs.
"""
