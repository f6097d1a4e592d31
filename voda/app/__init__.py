"""The composition root: the only place that builds adapters and lets them run together."""
