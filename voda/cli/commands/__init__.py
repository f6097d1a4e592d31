"""The commands, one module each, found by their files.

`jobs/` asks a running server about jobs, `history/` reads a log or simulates one, `service/` runs and configures voda.
"""
