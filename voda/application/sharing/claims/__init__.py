"""Cards for pods that claim parts of them: voda chooses, kube-scheduler allocates.

In reading order: `claim_placer` (pods get cards), `claimants` (what they ask for), `card_round` (which get some
now), `card_allotment` (which cards; pure), `card_requests` (jobs give up cards for them), `bind_failures` (whose claims
cannot be made), `scheduling_tries` (where kube-scheduler could not place them), `claim_accounts` (accounts follow what
claims were given), `claim_decisions` (by which facts; pure).
"""
