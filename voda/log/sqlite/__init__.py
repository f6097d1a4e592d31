"""A log in an SQLite file: file, database, high_water_mark, notify, errors."""
