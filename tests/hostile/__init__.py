"""Hostile users and jobs beside an honest one, on a real `voda up` of root: what the honest one is owed stays.

In reading order: `run` (what happens), `honest`, `attacks`, `clock`, `restarts`, `people` (processes of other
users), `verdict`.
"""
