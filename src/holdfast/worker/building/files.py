"""Reads files of a working copy that strangers have written to: by descriptors, and never through a link.

- A path is walked folder by folder, each opened without following links, so none of them can lead outside.
- Only plain files are read. One that has names elsewhere, which a hard link gives it, is refused: it may be another's.
"""

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path

FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # a pipe that nobody writes to must not stop us


class Refused(Exception):
    """This file is not taken; the text says why."""


@contextlib.contextmanager
def opened(root: Path, path: str) -> Iterator[int]:
    """A descriptor of a plain file below the root; `FileNotFoundError` if it is not there, `Refused` if it may not be read."""
    *folders, name = [part for part in path.split("/") if part not in ("", ".")] or ["."]
    with contextlib.ExitStack() as held:
        here = _held(held, os.open(root, FOLDER))
        for folder in folders:
            here = _held(held, _open(folder, FOLDER, here, path))
        descriptor = _held(held, _open(name, FILE, here, path))
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            kind = "a folder; pack it into one file" if stat.S_ISDIR(found.st_mode) else "no plain file"
            raise Refused(f"{path} is {kind}")
        if found.st_nlink > 1 and found.st_nlink > _names_below(root, found.st_ino, found.st_dev):
            raise Refused(f"{path} is a hard link to a file outside the working copy")
        yield descriptor


def _held(held: contextlib.ExitStack, descriptor: int) -> int:
    held.callback(os.close, descriptor)
    return descriptor


def _open(name: str, flags: int, folder: int, path: str) -> int:
    if name == "..":
        raise Refused(f"{path} leads out of the working copy")
    found = os.stat(name, dir_fd=folder, follow_symlinks=False)
    if stat.S_ISLNK(found.st_mode):
        raise Refused(f"{path} is a symbolic link, or lies behind one")
    if not stat.S_ISDIR(found.st_mode) and not stat.S_ISREG(found.st_mode):
        raise Refused(f"{path} is no plain file")
    try:
        return os.open(name, flags, dir_fd=folder)
    except NotADirectoryError as error:
        raise FileNotFoundError(path) from error
    except OSError as error:
        raise Refused(f"{path} cannot be opened: {error.strerror}") from error


def _names_below(root: Path, inode: int, device: int) -> int:
    """How many names of one file lie below the root: builds themselves make hard links too."""
    count = 0
    more = [os.fspath(root)]
    while more:
        with contextlib.suppress(PermissionError), os.scandir(more.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    more.append(entry.path)
                elif entry.inode() == inode and entry.stat(follow_symlinks=False).st_dev == device:
                    count += 1
    return count
