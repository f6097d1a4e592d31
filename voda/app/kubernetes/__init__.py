"""The service on a Kubernetes cluster.

In reading order: replica (start to end), service (the wiring), pools (the pools' loops), options (the settings file),
log_queries (what the cluster asks of the log), log_liveness.
"""
