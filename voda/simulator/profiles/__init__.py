"""Ground truths: how fast the jobs of the workloads really are. See ../profile.py for what a profile is."""
