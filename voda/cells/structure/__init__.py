"""What there is, frozen: physical cells and the virtual cells that virtual clusters are guaranteed.

In reading order: `cell_types`, `trees`, `topology` (the physical cells), `derivation` (a topology from the
nodes alone), `quotas` (the virtual cells). What operators write is in `voda.domain.cells`.
"""
