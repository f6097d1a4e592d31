"""Shared GPUs: which node and which of its devices each container of a pod gets, whole devices and shares alike.

In reading order: `pod` (what a pod asks for), `nodes` (nodes as arrays), `fleet` (what is free now), `joint` (all
containers of a pod on every node at once), `placement` (the best node, rated anew only where something changed),
`kinds` (what pods usually ask for), `fragmentation` (GPUs that such pods cannot use), `raters/`
(one file each), `accounts` (the log's accounts as all of these read them), `node_fragments` (what is free of each node
and of no use).

Rules: no device gives more than 1,000 milli or its memory; a release returns exactly what was taken; of nodes with
equal scores the first wins. To add a rater, write one file in `raters/` with one class that has `name`, `title`,
`pick` and `score`.
"""
