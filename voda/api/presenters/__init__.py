"""From the state to the records that travel over HTTP; pure.

In reading order: `jobs`, `queue_places`, `pools` (nodes and settings too), `gpus` (of nodes), `events`,
`explanations`, `vodascheduler` (the API of vodascheduler, which older clients use).
"""
