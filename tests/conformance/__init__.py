"""Conformance: what other systems do, recorded, and voda's own functions driven with it."""
