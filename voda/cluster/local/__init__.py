"""The local cluster: jobs run as processes of this Linux machine.

In reading order: `cluster` (the port's adapter), `context` (what its jobs share), `job` (one job) with `exit_policy`,
`device_holders` and `job_replicas`, `devices` and `node_health` (what
this machine offers), `outputs` (what replicas print); `run_spec`, `command` and `rendezvous` (how each kind of job is
run); `folder` (what the disk holds of a job), `processes/` (the parents of programs, which outlive voda),
`isolation/`.
"""
