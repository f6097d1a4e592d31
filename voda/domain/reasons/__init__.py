"""Reasons as records: what becomes of a job by a plan, and why.

`base`, then the causes: `nodes`, `policies`, `holds`, `cells`; `outcomes` has the reason of a plan, with its causes.

Rules: a record holds the figures that a decision was made with, and no words but those of others (`Said`).
`voda/events/text/reasons.py` alone makes a sentence of it, and no code reads one. What is rounded is rounded as it is
said.
"""
