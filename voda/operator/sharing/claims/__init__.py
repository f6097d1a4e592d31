"""GPUs for pods that claim parts of them: voda chooses, kube-scheduler allocates.

In reading order: `claim_placer` (pods get GPUs), `claimants` (what is known of them), `round` (what is to be done of
each now), `attempt` (what is remembered of each), `verdicts` (what kube-scheduler says of them), `allotment` (which
GPUs), `requests` (jobs give up GPUs for them); `claim_accounts` (accounts follow what claims were given), and
`claim_decisions` (by which facts). All are pure but `claim_placer`, `claimants` and `claim_accounts`.
"""
