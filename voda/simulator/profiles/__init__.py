"""How fast the jobs of the workloads really are: `base` says what a profile is.

`speedup` is a job with a given speedup, `pollux` one of the measured applications, with `step_times`.
"""
