"""Who may do what: tokens and their roles, ownership of jobs, and files that only their owner may read."""
