"""Figures of the log: appends, tails and starts, on every store there is."""
