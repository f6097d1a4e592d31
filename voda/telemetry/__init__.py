"""Shows to Prometheus what is measured through the port in voda/metrics.py, and what is read when a scrape asks.

`prometheus` makes the instruments and the page; `gauges` reads the state of the service, its leadership and its mirror;
`cell_gauges` reads what virtual clusters have, `share_gauges` what is free of shared GPUs; `job_counters` counts what
the log's events come to.
"""
