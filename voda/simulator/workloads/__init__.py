"""Workloads by name: `catalogue` lists them, `request` is what a user can choose.

Measured ones are `voda_exp`, `pollux` and `philly`; `poisson` generates jobs; `user_csv` reads a file. Jobs without a
measured speedup get one from `synthetic`.
"""
