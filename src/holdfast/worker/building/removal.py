"""Removes what a build leaves on the disk: trees of any depth, with any rights on their folders.

- Nothing is followed through a link, also if a process that still runs changes the tree at the same time.
- What cannot be removed stays, and raises nothing.
"""

import contextlib
import os
import secrets
import stat
from pathlib import Path

FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
ALL_RIGHTS = 0o700


def remove(path: Path) -> None:
    """Remove a file, a link or a tree; nothing happens if it is not there."""
    with contextlib.suppress(FileNotFoundError):
        if stat.S_ISDIR(path.lstat().st_mode):
            _remove_tree(path)
        else:
            path.unlink()


def _remove_tree(path: Path) -> None:
    with contextlib.suppress(OSError):
        parent = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            _open_up(path.name, parent)
            top = os.open(path.name, FOLDER, dir_fd=parent)
            try:
                _empty(top)
            finally:
                os.close(top)
            os.rmdir(path.name, dir_fd=parent)
        finally:
            os.close(parent)


def _empty(top: int) -> None:
    """Move each folder into the top one before it is emptied: so no path is long, and nothing calls itself."""
    token, number = secrets.token_hex(4), 0
    folders = ["."]
    while folders:
        name = folders.pop()
        with contextlib.suppress(OSError):
            folder = os.open(name, FOLDER, dir_fd=top)
            try:
                for inner in _unlink_files(folder):
                    with contextlib.suppress(OSError):
                        number += 1
                        _open_up(inner, folder)
                        os.rename(inner, f"{token}-{number}", src_dir_fd=folder, dst_dir_fd=top)
                        folders.append(f"{token}-{number}")
            finally:
                os.close(folder)
            if name != ".":
                os.rmdir(name, dir_fd=top)


def _unlink_files(folder: int) -> list[str]:
    """Unlink everything but the folders. Return their names."""
    inner = []
    with os.scandir(folder) as entries:
        names = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
    for name, is_folder in names:
        if is_folder:
            inner.append(name)
        else:
            with contextlib.suppress(OSError):
                os.unlink(name, dir_fd=folder)
    return inner


def _open_up(name: str, folder: int) -> None:
    """Give the owner all rights on a folder: without them it cannot be listed, emptied or moved."""
    if stat.S_IMODE(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode) & ALL_RIGHTS == ALL_RIGHTS:
        return
    if os.chmod in os.supports_follow_symlinks:
        os.chmod(name, ALL_RIGHTS, dir_fd=folder, follow_symlinks=False)
        return
    descriptor = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=folder)
    try:
        os.chmod(f"/proc/self/fd/{descriptor}", ALL_RIGHTS)
    finally:
        os.close(descriptor)
