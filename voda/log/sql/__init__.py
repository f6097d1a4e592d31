"""What the SQLite and PostgreSQL stores share: tables, statements and the store itself."""
