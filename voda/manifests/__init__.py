"""Manifests of MPIJobs and PyTorchJobs: reading them, what they ask for, and what they run."""
