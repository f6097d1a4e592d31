"""What keeps a job from voda, from other jobs and from the machine, where it runs as a user of its own.

In reading order: `user_folders` (where a user's job writes, and where it cannot), `job_environment` (which variables it
begins with), `limits` (how much its manifest allows it), `cgroups` (how the kernel is told).
"""
