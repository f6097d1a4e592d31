"""The store of a log in SQLite or PostgreSQL: schema, rows, stream_reader, store."""
