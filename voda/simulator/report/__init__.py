"""Pages and tables that compare runs.

`comparison_page` and `timeline_page` are the HTML pages, `comparison_table` is for the terminal; both read
`run_summary`. `pictures` draws a run from `gantt` and `bins`, `distribution` draws completion times;
`svg` and `colours` are shared.
"""
