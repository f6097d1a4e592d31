"""The kinds of jobs that voda runs, one file each: manifests, placement and every cluster read them here. Pure.

Read base first (what a kind says of itself), then pod_template (the typed parts that all kinds share), mpijob with
mpijob_versions, pytorchjob, validation, and registry, which finds a kind by its file.
"""
