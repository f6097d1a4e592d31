"""What Prometheus is told: counters and histograms fed as things happen, gauges read when asked."""
