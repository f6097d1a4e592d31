"""Logs as files: segment, archive, copy, common_prefix, retention, archive_backed_store, verify, old_export."""
