"""Workloads by name: `catalogue` lists them, `request` is what a user can choose.

Measured ones are `voda_exp`, `pollux` (with `pollux_applications` and `pollux_step_times`) and `philly`; `poisson`
generates jobs; `user_csv` reads a file.
"""
