"""The elastic launcher, `voda run`: keeps a program running on the hosts there are, whatever their number.

In reading order: `run` (the loop), `state_machine` (what to do next; pure), `hosts` and `addresses` (where), `commands`
(mpirun and torchrun; pure), `program` (its processes, and those of a launcher that is killed).
"""
