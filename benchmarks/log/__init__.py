"""Figures of the log: appends, tails, starts and failovers, on every store there is."""
