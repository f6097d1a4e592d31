"""The kinds of jobs that voda runs, one file each: manifests, placement and every cluster read them here. Pure.

In reading order: `base` (what a kind says of itself), `pod_template` (the typed parts that all kinds share), `mpijob`,
`pytorchjob`, `indexed_job`, `jobset` (one Indexed Job within), `registry`, which finds a kind by its file, and
`launcher` (what starts the processes of a job of any kind).
"""
