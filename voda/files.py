"""Flushes files and folders to the disk: a file's name survives a power cut only once its folder is flushed."""

import os
from pathlib import Path


def sync(path: Path) -> None:
    """Wait until a file's content, or the names of a folder's files, are on the disk.

    Raises:
        OSError: the disk refuses, or there is no such file or folder.
    """
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
