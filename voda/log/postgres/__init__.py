"""A log in PostgreSQL: engine, database, writer, notify, errors."""
