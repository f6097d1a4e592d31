"""How a gang's place is found, none of it exponential.

In reading order: `views` (the nodes that count, best first), `packing` (workers on nodes, leafs within a node),
`losses` (which opportunistic work is given up first), `mapping` (physical cells for virtual ones), `matching` (cells
of one parent, each with a candidate of its own).
"""
