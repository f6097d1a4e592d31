"""Commands that follow what changes.

`lists` fetches jobs, nodes and pools, and `refresh` shows them again. `submitted_jobs` submits documents, and follows
their jobs until they end. `top_loop` runs the screen of `voda top`, which `top_screen` draws.
"""
