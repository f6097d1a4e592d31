"""Commands about the jobs of a running server.

`submit`, `get` and `describe`, `explain`, `logs` and `events`, `scale`, `delete`; `top` shows all of it live.
"""
