"""Gives worker pods their nodes: `binder`, by the checks in `fit` and `node_filters` (pure)."""
