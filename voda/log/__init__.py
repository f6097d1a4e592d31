"""The event log: its ports and the stores behind them.

In reading order: the ports in `store`; what all stores share (`append_plan`, `group_commit`, `tail`); the stores
(`memory`, `sql/`, `jetstream/`); `instrumented_store`, which wraps any of them; `archive/` (logs as files), `lease/`,
and `factory`, which opens a log by its path or URL.
"""
