"""Events as messages of a stream: messages, index, state, marks, synced_log, reader, writer, restore, truncation_check
and settings.
"""
