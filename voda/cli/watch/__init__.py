"""Commands that follow what changes.

`lists` fetches jobs, nodes and pools, and `refresh` shows them again. `submitted_jobs` submits documents, and
`follow_jobs` follows their jobs until they end; `batch_cancel` cancels jobs. `top_loop` runs the screen of
`voda top`, which `top_screen` draws.
"""
