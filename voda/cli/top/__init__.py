"""The live screen of `voda top`."""
