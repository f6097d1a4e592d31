"""How each kind of job object is made, resized, suspended and read, as its operator expects it. Pure.

In reading order: `base` (what a kind does), `mpijob`, `pytorchjob`, `indexed_job` and `jobset` (what their operators
do differently), `template` (what voda writes into pods), `operator_pods` (how pods are named, and why they failed),
`served_kinds`, which finds the kinds by their files and asks a server which of them it serves, and `kubectl_manifest`
(a program's manifest, complete for kubectl).
"""
