"""The words of the house: frozen values, no input or output, no third-party library but msgspec.

In reading order: `gpus`, `job`, `node`, `plan`, `cells`, `state` (what a decision reads); `lease` (a port), `plugins`
(parts found by file), `rng` (chance as a function), `errors`.
"""
