"""Virtual clusters as use cases: `membership` (in which one a job is), `apply` (other cells and virtual clusters),
`quota_size` (whether a job ever has a guarantee).
"""
