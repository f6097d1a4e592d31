"""Reconcilers compare the plan with what the cluster shows, and act on the difference."""
