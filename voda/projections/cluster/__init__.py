"""The pools as they are now, of live jobs alone.

In reading order: `live_cluster` (the events), `pool_changes` (what they change of a pool), `dependencies` (which jobs
wait for which), `shares` (the accounts of shared GPUs), `surplus` (how long GPUs stay free).
"""
