"""The figures: one module each, with TITLE and `run`."""
