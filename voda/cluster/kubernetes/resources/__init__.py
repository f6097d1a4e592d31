"""Kubernetes objects as records.

In reading order: `objects` (trimmed to the fields that voda reads), `interning` (equal parts are kept once),
`quantity`, `pod_requests`, `well_known` (labels, annotations and names).
"""
