"""Which nodes take a job's workers, and how many, known before a plan is made.

`node_rules` is the hook of a decision. `filters` is what kube-scheduler says of a pod's labels, taints and affinity;
`node_fit` puts it together with resources for a whole pool; `confinement` bounds what a policy gives to jobs that only
some nodes take; `bound_plan` has the last word where there are such jobs.
"""
