"""The commands' side of voda.client.

In reading order: `client` (what a command asks with), `remote_log` (the log, page by page or live), `confirmation`
(asks before another user's job is changed), `pods`, `port_forward`, `exec_terminal`.
"""
