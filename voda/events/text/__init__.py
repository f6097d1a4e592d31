"""Reasons as English sentences, one module for each of `voda.domain.reasons`; `event_text` says whole events. Pure."""
