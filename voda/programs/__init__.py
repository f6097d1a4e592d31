"""Programs that come without a manifest: how they are started, and the manifest made of them.

The command line and the Python client share it, so it needs the standard library alone. In reading order: `program`
(the user's options), `launchers` (who starts it), `search_path` and `interpreter` (what runs it), `program_manifest`;
`importable` and `stand_in` are what programs can import of voda.
"""
