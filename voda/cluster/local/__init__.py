"""The local cluster: jobs run as processes of this Linux machine.

In reading order: `cluster` (the port's adapter), `context` (what its jobs share), `job` (one job) with `exit_policy`,
`device_claims` and `job_replicas`, `devices` (what this machine offers), `outputs` (what replicas print); `run_spec`,
`command`, `rendezvous` and `rsh_agent` (how each kind of job is run); `folder` (what the disk holds of a job),
`replica` (starts shims and finds them again) and `shim` (the parent of one program, which outlives voda).
"""
