"""Pages and tables that compare runs.

`comparison_table` is for the terminal, `pages` are HTML; their `pictures` are a `gantt` chart of each run and the
distribution of completion times, drawn with `svg`.
"""
