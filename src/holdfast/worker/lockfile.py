"""A file that a worker on SQLite keeps locked while it lives, so that its death is known at once on the same machine (C2)."""

import contextlib
import fcntl
import os

from holdfast.file_modes import open_file

_held: set[str] = set()  # names locked by this process: POSIX locks are the process's, and asking about them drops them


class LockFile:
    """Locked until released or until this process ends. Not inherited by child processes."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._descriptor = open_file(path, os.O_RDWR | os.O_CREAT)
        fcntl.lockf(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _held.add(os.path.basename(path))

    def release(self) -> None:
        with contextlib.suppress(OSError):
            os.unlink(self.path)
        os.close(self._descriptor)
        _held.discard(os.path.basename(self.path))


def is_abandoned(path: str) -> bool:
    """True if nobody holds the lock."""
    if os.path.basename(path) in _held:
        return False
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    else:
        return True
    finally:
        os.close(descriptor)


def forget(path: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(path)
