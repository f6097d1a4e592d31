"""The elastic launcher, `voda run`: keeps a program running on the hosts there are, whatever their number.

In reading order: `run` (the loop), `state_machine` (what to do next; pure), `hosts` and `discovery` (where), `commands`
(mpirun and torchrun; pure), `program` and `output` (its processes), `orphan_killer` (a launcher that is killed).
"""
