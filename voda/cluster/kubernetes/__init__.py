"""The Kubernetes cluster: MPIJobs and PyTorchJobs, whose workers voda itself binds to nodes.

In reading order: pools (all of it, composed from setup), mirror (what every replica does), leader_loop (what only the
leader does), cluster (the port, one per pool), lease, pod_logs. Below: resources (objects as records), client (the API
server), kinds (one value per job kind), state (what there is), binding, convergence (what is to be), reporting.
"""
