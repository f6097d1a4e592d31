"""A log in PostgreSQL: `database`, over `engine` (connections) and `writer`; `notify`, `errors`."""
