"""Commands that follow what changes.

`lists` fetches jobs, nodes and pools, and `refresh` shows them again; `batch_submit` submits documents, and
`follow_jobs` follows their jobs until they end.
"""
