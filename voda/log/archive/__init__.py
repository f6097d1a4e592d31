"""Segments of a log as files: archives, backups, copies, exports and their verification."""
