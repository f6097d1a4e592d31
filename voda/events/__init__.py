"""What the log records. Pure.

In reading order: `types` (one record per fact), `envelope`, `codec` (bytes), `upcasters` (facts of old schemas),
`plan_diff` and `spec_changes` (how facts change a plan and a job's spec), `event_text` (facts as sentences).
"""
