"""Kubernetes objects as trimmed records (objects, interning), quantity, pod_requests, well_known names."""
