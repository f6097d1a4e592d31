"""What the log records. Pure.

In reading order: `types` (one record per fact), `envelope`, `codec` (bytes, also of old schemas), `event_text` (facts
as sentences).
"""
