"""Reconcilers compare plan and cluster: `diff` gives the actions, `workers` has the cluster carry them out.

`resync` compares the log with the cluster, `watcher` records notices, `progress` reads progress files.
"""
