"""HiveD's faces: what its pods' annotations, its scheduler extender and its inspection say, of a book of cells.

In reading order: `pod_request` (what a pod asks for), `bind_info` (where one was placed, read back after a restart),
`extender` (filter, preempt and bind), `inspection` (gangs and cells). Pure: HTTP and Kubernetes are the caller's.

Rule: names and shapes are HiveD's to the letter, as its clients read them; what is decided is decided by voda.cells.
"""
