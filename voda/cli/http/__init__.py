"""The client of the server's API, for all commands.

In reading order: `target` finds the server, `client` sends requests and reads error answers, `retry` repeats those
that can be repeated; `remote_log` reads the log and follows live events.
"""
