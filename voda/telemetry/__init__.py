"""Prometheus metrics: counters and histograms that the service feeds, gauges read when a scrape asks."""
