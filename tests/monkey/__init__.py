"""A random user with random faults on a real control plane, real operators and kwok: `python -m tests.monkey`.

`steps` draws what happens from a seed; `hands` and `faults` do it, with GPUs that
are counted or that jobs claim, whole or in parts (`claims`);
`invariants` says what must hold at rest, given the log and lists of objects; `served` is `voda serve` that also says
how its mirrors differ from fresh lists; `run` puts them together for one seed.
"""
