"""The files and processes of a job's replicas.

In reading order: `shim` (the parent of one program, which outlives voda), `replica` (starts shims and finds them
again), `record` and `folder` (what lies on the disk), `process_table` (what the kernel knows).
"""
