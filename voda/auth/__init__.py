"""Authentication and ownership, without HTTP.

`callers` is the caller of a request and what its role may do, `tokens` tells callers by their tokens, `local_users`
those of this machine by their accounts, `secret_files` keeps secrets on the disk.
"""
