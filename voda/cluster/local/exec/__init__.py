"""Commands that users run beside a replica of a local job.

In reading order: `commands` (the port's adapter), `session` (one command, as voda sees it), `descriptors` (pipes and
terminals that do not block), `supervisor` (the parent of one command, a process of its own).
"""
