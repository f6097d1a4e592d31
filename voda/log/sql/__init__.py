"""The log in a relational database.

In reading order: `schema`, `rows` and `store`; SQLite (`sqlite`, `sqlite_file`, `sqlite_journal`) and PostgreSQL
(`postgres`, `postgres_engine`, `postgres_writer`).
"""
