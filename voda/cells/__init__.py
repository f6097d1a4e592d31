"""Cells: GPUs with their topology, guaranteed to virtual clusters. Pure: a book of cells, and decisions about gangs.

In reading order: `structure/` (what there is), `gangs` (what is asked for), `free_cells` (buddies), `book` (who has
what), `bindings`, `health`, `preemption` (how it changes), `requests`, `decisions`, `search/` (how a place is found),
`scheduling` (the decision itself), `recovery`, `adoption` (how a decision, a restart or another configuration is
carried out), `accounting` (what is told of it), `pool_cells` (the book of a pool, from what was applied and its nodes).

After Zhao et al., HiveD: Sharing a GPU Cluster for Deep Learning with Guarantees, OSDI 2020. Rule: whatever runs and
whatever is asked for, every virtual cluster can be given the cells that it is owed; a decision is a function of the
book and the request alone, with a fixed order of choices.
"""
