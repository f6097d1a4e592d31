"""One step of control: catch up with the log, decide, adopt."""
