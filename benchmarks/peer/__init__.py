"""The peer: the simulator of Qiao et al., "Pollux", OSDI'21, as parts that plug into ours.

Rule: only its rules live here (two policies, a placer, the rounding of its clock); the log, the controller, the
reconciler and the simulated cluster they run in are the product's.
"""
