"""The folder of a build: `generated`, `log`, and last of all `completed` (B2, B3).

- A new attempt puts a new folder in the place of the old one. Everything an attempt writes goes through the descriptor of
  the folder that it made, so one that was thought dead and comes back writes into a folder that is gone.
- `completed` appears whole or not at all, and only when everything else of the build is on the disk.
"""

import contextlib
import os
import secrets
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import msgspec

from holdfast.builds import result as results
from holdfast.builds.result import BuildResult
from holdfast.errors import Conflict
from holdfast.file_modes import ensure_folder, make_folder, open_file
from holdfast.worker.building.removal import remove

GENERATED, COMPLETED, LOG = "generated", "completed", "log"
NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL
OWNER = ".instance"  # a file beside the folders of builds


class BuildFolder:
    """One attempt's folder, held open."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.descriptor = _made_anew(path)
        self.work = (
            path / f"work-{secrets.token_hex(4)}"
        )  # a name of its own: old processes may still know the last one
        for each in (self.work, self.work / "source", self.work / "home", self.work / "tmp", self.work / "shm"):
            each.mkdir(mode=0o700)

    def log(self) -> int:
        """A descriptor that appends to the log."""
        return self.open(LOG, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def log_size(self) -> int:
        return os.stat(LOG, dir_fd=self.descriptor).st_size

    def new_output(self, name: str) -> int:
        """A descriptor of a new file in `generated`."""
        return self.open(f"{GENERATED}/{name}", os.O_WRONLY | os.O_CREAT | os.O_EXCL)

    def drop_output(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(f"{GENERATED}/{name}", dir_fd=self.descriptor)

    def open(self, name: str, flags: int) -> int:
        return open_file(name, flags | os.O_NOFOLLOW, self.descriptor)

    def complete(self, result: BuildResult) -> None:
        """Write `completed`; `Conflict` if a newer attempt has taken the place of this folder."""
        self._set_aside()
        self._sync(LOG)
        self._sync(GENERATED)
        partial = f".{COMPLETED}"
        try:
            descriptor = self.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        except FileNotFoundError as error:
            raise Conflict(
                f"{self.path} belongs to a newer attempt of this build; what this one found is dropped."
            ) from error
        with open(descriptor, "wb") as file:
            file.write(results.encode(result))
            file.flush()
            os.fsync(file.fileno())
        os.rename(partial, COMPLETED, src_dir_fd=self.descriptor, dst_dir_fd=self.descriptor)
        os.fsync(self.descriptor)
        _sync_path(self.path.parent)

    def _set_aside(self) -> None:
        """Take the work out of the folder. To remove it may take longer than an abort waits."""
        aside = self.path.parent / f".{self.path.name}-old-{secrets.token_hex(4)}"
        with contextlib.suppress(FileNotFoundError):
            self.work.rename(aside)
            self.work = aside

    def _sync(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            descriptor = self.open(name, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def close(self) -> None:
        """Let go of it; what is left of the work is removed."""
        remove(self.work)
        os.close(self.descriptor)


@contextlib.contextmanager
def opened(path: Path) -> Iterator[BuildFolder]:
    """A new, empty folder for one attempt, with `generated` in it."""
    folder = BuildFolder(path)
    try:
        yield folder
    finally:
        folder.close()


def read_completed(path: Path) -> BuildResult | None:
    """What came of the build in this folder; None while there is no `completed`, or none that can be read."""
    try:
        return results.decode((path / COMPLETED).read_bytes())
    except (FileNotFoundError, NotADirectoryError, msgspec.DecodeError):
        return None


def remove_foreign(path: Path) -> None:
    """Remove a folder that was found completed and of another build, unless a builder has just put a new one in its place."""
    aside = path.parent / f".{path.name}-old-{secrets.token_hex(4)}"
    with contextlib.suppress(FileNotFoundError):
        path.rename(aside)
        if (aside / COMPLETED).exists():
            remove(aside)
        else:
            aside.rename(path)


def write_ended(path: Path, result: BuildResult, said: str) -> None:
    """The files of a build that ended without a builder. A log that is there is kept, and what is said goes at its end."""
    ensure_folder(path)
    ensure_folder(path / GENERATED)
    for left in path.glob("work-*"):
        remove(left)
    with open(open_file(path / LOG, os.O_WRONLY | os.O_APPEND | os.O_CREAT), "ab") as log:
        log.write(said.encode("utf-8", "replace"))
        log.flush()
        os.fsync(log.fileno())
    partial = path / f".{COMPLETED}-{secrets.token_hex(4)}"
    with open(open_file(partial, NEW_FILE), "wb") as file:
        file.write(results.encode(result))
        file.flush()
        os.fsync(file.fileno())
    os.replace(partial, path / COMPLETED)
    _sync_path(path)
    _sync_path(path.parent)


def hold(builds: Path, identity: str) -> None:
    """Make a folder of builds an instance's own; `Conflict` if it is another's, whose builds have the same numbers."""
    owner = owner_of(builds)
    if owner is None:
        ensure_folder(builds)
        partial = builds / f"{OWNER}-{secrets.token_hex(4)}"
        with open(open_file(partial, NEW_FILE), "w", encoding="utf-8") as file:
            file.write(f"{identity}\n")
        with contextlib.suppress(FileExistsError):
            os.link(partial, builds / OWNER)  # the first one has it
        partial.unlink()
        owner = owner_of(builds)
    if owner != identity:
        raise Conflict(
            f"{builds} holds the builds of another instance ({owner}), and this one is {identity}: they would remove each "
            f"other's. Give this one a folder of its own by `folder` in [builds]. If that database is gone, remove {builds}."
        )


def owner_of(builds: Path) -> str | None:
    """The instance whose builds are kept there; None if it is nobody's yet."""
    try:
        return (builds / OWNER).read_text("utf-8").strip()
    except (FileNotFoundError, NotADirectoryError):
        return None


def remove_leftovers(builds: Path, before: datetime) -> None:
    """Remove what killed builders left beside the folders of builds, if nobody touched it since."""
    for left in (*builds.glob(".*-old-*"), *builds.glob(".*-new-*")):
        with contextlib.suppress(FileNotFoundError):
            if left.lstat().st_mtime < before.timestamp():
                remove(left)


def _made_anew(path: Path) -> int:
    """Put a new folder in the place of the old one; its descriptor."""
    ensure_folder(path.parent)
    token = secrets.token_hex(4)
    fresh, old = path.parent / f".{path.name}-new-{token}", path.parent / f".{path.name}-old-{token}"
    make_folder(fresh)
    make_folder(fresh / GENERATED)
    descriptor = os.open(fresh, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    with contextlib.suppress(FileNotFoundError):
        path.rename(old)
    fresh.rename(path)
    remove(old)
    return descriptor


def _sync_path(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
