"""A log in an SQLite file: `database`, `file`, `high_water_mark`, `notify`, `errors`."""
