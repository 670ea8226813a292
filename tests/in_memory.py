"""Where tests keep their files: in memory, since nobody needs them afterwards and waiting for a disk was much of their time.

A machine without room for it, or without such a folder, uses the system's own folder for temporary files.
"""

import shutil
import tempfile
from pathlib import Path

import psutil

MEMORY = Path("/dev/shm")
ROOM = 6 << 30  # bytes: several times what a whole run needs


def folder() -> Path:
    return MEMORY if _free() >= ROOM else Path(tempfile.gettempdir())


def _free() -> int:
    """What the folder may still take, and the machine can give."""
    return min(shutil.disk_usage(MEMORY).free, psutil.virtual_memory().available) if MEMORY.is_dir() else 0
