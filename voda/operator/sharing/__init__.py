"""GPUs and shares of them for pods that kube-scheduler places: voda is its extender, or chooses GPUs for claims.

In reading order, of both: `share_reconciler` (the leader puts accounts right), `share_corrections` (by which facts;
pure), `pod_explanations` (why a pod waits). Of the extender: `share_extender` (the verbs, from bytes to records),
`share_binder` (a pod gets its GPUs, then its node), `annotated_shares` (what pods have of a node), `extender_loop` (the
leader's part), `waiting_pods` (kube-scheduler looks again at pods that fit now). Of pods that claim: `claims`.

Rules: a share is a fact in the log before the pod is bound; every step may be repeated, and a crash between any two
leaves nothing that is not put right.
"""
