"""Lists and jobs that commands follow."""
