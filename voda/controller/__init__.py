"""Control of a pool: `controller` decides, `follower` reads the log, `pool_loop` drives both and the cluster.

`leader_epochs` claims epochs; `reclaim_watch` knows the deadlines of reclaims; `pool_choice` finds jobs of several
pools that would start in another; `instrumented` measures policies and placers.
"""
