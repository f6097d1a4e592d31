"""kube-scheduler's extender protocol, v1: what it sends before it places a pod, and what it takes for an answer.

`wire` has the records; `share_verbs` answers for pods that ask for GPUs or shares of them. Pure: HTTP is the
caller's.
"""
