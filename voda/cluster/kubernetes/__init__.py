"""The Kubernetes cluster: MPIJobs and PyTorchJobs, and plain Jobs, whose workers go to the nodes that voda names.

In reading order: `pools` composes all of it from `setup`; `mirror` is what every replica does, `leader_loop` what only
the leader does; `cluster` is the port, one per pool; `pod_logs`; `pod_binding` and `claim_binding` (GPUs for pods).
Kubernetes objects are records (`objects`), with `quantities` and names (`well_known`). Below: `kinds/` (what each
operator does differently), `state/` (what there is), `convergence/` (the way to the desired state, the gates of workers
included). The API server is reached by `voda/kubernetes_client/`.
"""
