"""What the commands that read or carry a log share: `open` and `files`, then `copy` and `archive`."""
