"""Virtual clusters as use cases: `membership` (in which one a job is), `cell_use` (what uses the cells of a pool),
`apply` (other cells and virtual clusters), `quota_size` (whether a job ever has a guarantee).
"""
