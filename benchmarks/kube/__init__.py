"""Figures of voda on Kubernetes, taken on a real API server that shares this machine's cores with all else."""
