"""Commands that users run beside a replica of a job on Kubernetes.

In reading order: `commands` (the port's adapter), `session` (one command, as the API server speaks of it).
"""
