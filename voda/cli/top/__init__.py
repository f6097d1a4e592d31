"""The live screen of `voda top`: `loop` refreshes the `screen`, `plan_changes` fills a part, `keys` reads keys."""
