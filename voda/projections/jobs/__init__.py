"""Jobs, live ones and ended ones, as users ask for them.

In reading order: `registry` (all of them), `names` (which one a text means), `record` (one job), `record_text` (it in
words), `changes` (what an event changes of a job, for decisions as well).
"""
