"""GPUs for pods that claim parts of them: voda chooses, kube-scheduler allocates.

In reading order: `claim_placer` (pods get GPUs), `claimants` (what is known of them), `round` (what is to be done of
each now), `attempt` (what is remembered of each), `verdicts` (what kube-scheduler says of them), `allotment` (which
GPUs), `requests` (jobs give up GPUs for them); `claimed_shares` (what claims were given), and
`stale_claimants` (which shares go). All are pure but `claim_placer`, `claimants` and `claimed_shares`.
"""
