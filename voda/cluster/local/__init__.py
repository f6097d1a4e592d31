"""The local cluster: jobs run as processes of this Linux machine.

In reading order: `cluster` (the port's adapter), `job` (one job) with `job_state`, `exit_policy`, `device_claims` and
`job_replicas`, `context` (what they share), `outputs` (what replicas print); `run_spec`, `command`, `mpi`, `torch` and
`rsh_agent` (how each kind of job is run); `devices` and `gpus` (what this machine offers); `shim` (the parent of one
program, which outlives voda), `replica` (starts shims and finds them again), `folder` and `record` (what lies on disk).
"""
