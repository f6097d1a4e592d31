"""Pods that share GPUs arrive at a cluster, one after the other: how much of it can each rater hand out?

In reading order: `openb` (the public trace), `experiment` (one run), `compare` (several raters and seeds), `report`
(the table), `page` (the picture), `baselines` (the raters that FGD was compared with). `python -m benchmarks.sharing`
runs it.
"""
