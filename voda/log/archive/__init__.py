"""Logs as files, and what carries a log.

In reading order: `segment` and `archive` (a folder of segments, or one), `copy` (from any log to any other), `verify`,
`retention`, `archive_backed_store` (log and archive as one log).
"""
