"""Modes of the files and folders that Holdfast makes: for their owner only, or for the group too where the folder shares.

- A folder shares if its group may write to it and its setgid bit is set (`chmod g+ws`): its files get its group then.
- The umask has no say, and a file never has a wider mode than the one it keeps. Files that are there keep their mode.
"""

import contextlib
import os
import stat
from pathlib import Path

SHARING = stat.S_ISGID | stat.S_IWGRP


def file_mode(folder: str | Path, dir_fd: int | None = None) -> int:
    """Return the mode of a new file in this folder."""
    return 0o660 if os.stat(folder, dir_fd=dir_fd).st_mode & SHARING == SHARING else 0o600


def folder_mode(folder: str | Path) -> int:
    """Return the mode of a new folder in this one."""
    return 0o2770 if file_mode(folder) == 0o660 else 0o700


def open_file(path: str | Path, flags: int, dir_fd: int | None = None) -> int:
    """Open a file as `os.open` does; if it makes the file, with the mode that its folder asks for."""
    flags |= os.O_CLOEXEC
    if not flags & os.O_CREAT:
        return os.open(path, flags, dir_fd=dir_fd)
    try:
        made = os.open(path, flags | os.O_EXCL, 0o600, dir_fd=dir_fd)
    except FileExistsError:
        if flags & os.O_EXCL:
            raise
        return os.open(path, flags, 0o600, dir_fd=dir_fd)
    os.fchmod(made, file_mode(os.path.dirname(path) or ".", dir_fd))
    return made


def make_file(path: str) -> None:
    """Make an empty file if there is none. If it cannot be made, the caller's own attempt says why."""
    with contextlib.suppress(OSError):
        os.close(open_file(os.path.realpath(path), os.O_WRONLY | os.O_CREAT | os.O_EXCL))


def make_folder(path: Path) -> None:
    """Make a folder; `FileExistsError` if it is there."""
    path.mkdir(mode=0o700)
    path.chmod(folder_mode(path.parent))


def ensure_folder(path: Path) -> None:
    """Make a folder and those above it, unless they are there. Those above it have the mode that the umask leaves."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        make_folder(path)


def too_wide(path: str | Path) -> int | None:
    """Return the mode that a file or folder should have if others have more rights than that; None if all is well."""
    found, folder = os.stat(path), os.path.dirname(path) or "."
    wanted = folder_mode(folder) if stat.S_ISDIR(found.st_mode) else file_mode(folder)
    return wanted if found.st_mode & 0o077 & ~wanted else None
