"""Making a file's name last: what a folder says of its files survives a power cut only once the folder is synced."""

import os
from pathlib import Path


def sync_folder(folder: Path) -> None:
    """Wait until the names of a folder's files are on the disk.

    Raises:
        OSError: the disk does not take it, or there is no such folder.
    """
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
