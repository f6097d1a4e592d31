"""Rates nodes for pods: which node, and which of its GPUs each container of a pod gets, whole ones and parts alike.

In reading order: `pod` (what a pod asks for), `nodes` (nodes as arrays), `fleet` (what is free now), `joint` (all
containers of a pod on every node at once), `placement` (the best node, rated anew only where something changed),
`kinds` (what pods usually ask for), `fragmentation` and `stranding` (GPUs that such pods cannot use), `demand` (both,
of the pods of a span of time), `raters/` (one file each), `gpu_chooser` (by the log's accounts), `node_fragments` (what
is free of each node and of no use).

Rules: no GPU gives more than 1,000 milli or its memory; a release returns exactly what was taken; of nodes with equal
scores the first wins. To add a rater, write one file in `raters/` with one class that has `name`, `title`, `pick` and
`score`. These names are the door.
"""

from voda.sharing.rating.gpu_chooser import HIGHEST, GpuChooser, NodeChoice
from voda.sharing.rating.node_fragments import fragments
from voda.sharing.rating.pod import PodRequest
from voda.sharing.rating.raters import RATERS, Rater

__all__ = ["HIGHEST", "RATERS", "GpuChooser", "NodeChoice", "PodRequest", "Rater", "fragments"]
