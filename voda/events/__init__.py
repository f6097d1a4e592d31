"""What the log records. Pure.

In reading order: `records` (what facts share), `intents`, `observations` and `decisions` (one record per fact),
`types` (all of them), `envelope`, `codec` (bytes, also of old schemas), `event_text` (facts as sentences).
"""
