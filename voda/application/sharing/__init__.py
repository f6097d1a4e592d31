"""Cards and shares of them for pods that kube-scheduler places: voda is its extender, or chooses cards for claims.

In reading order, of the extender: `share_extender` (the verbs, from bytes to records), `share_binder` (a pod gets its
cards, then its node), `share_corrections` (where account and cluster differ; pure), `share_reconciler` (the leader puts
that right), `waiting_pods` (kube-scheduler looks again at pods that fit now). Of claims: `claim_placer` (pods get
cards), `claimants` (what they ask for), `card_allotment` (which cards; pure), `bind_failures` (whose claims cannot be
made), `template_maker` (templates of the sizes that pods name), `scheduling_tries` (where kube-scheduler could not
place them), `claim_accounts` (accounts follow what claims were given), `claim_decisions` (by which facts; pure). Of
both: `pod_explanations` (why a pod waits).

Rules: a share is a fact in the log before the pod is bound; every step may be repeated, and a crash between any two
leaves nothing that is not put right.
"""
