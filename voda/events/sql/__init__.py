"""The log in a relational database: SQLite, where one machine is enough, and PostgreSQL (shell)."""
