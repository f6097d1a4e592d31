"""The kinds of job objects: how each is written, resized, halted and read. Pure."""
