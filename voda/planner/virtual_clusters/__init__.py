"""Plans for pools with virtual clusters: every worker has cells, guaranteed by its job's virtual cluster or idle ones.

In reading order: `unused_book` (the cells that there are), `cell_draft` (which worker has which of them),
`former_workers` and `recovery` (the plan in force as a draft), `losses` (whose idle cells are taken back first),
`guaranteed` and `opportunistic` (the two parts of a plan), `cell_plan` (both together), `cell_reasons` (what users are
told); `card_cells` (which jobs share which card), `share_cards` and `share_answers` (what a decision sees of them, and
what each gets of it); `reclaims` (who has not left cells in time).
"""
