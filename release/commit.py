"""The last commit: its time, its files, and what they hold."""

import io
import os
import subprocess
import sys
import tarfile
from pathlib import Path

from release.dependencies import ROOT


def moment() -> int:
    """Return when the last commit was made, in seconds; `SOURCE_DATE_EPOCH` wins."""
    return int(os.environ.get("SOURCE_DATE_EPOCH") or _git("log", "-1", "--format=%ct"))


def files() -> set[str]:
    """Return the paths of all files of the last commit."""
    return set(_git("ls-tree", "-r", "-z", "--name-only", "HEAD").decode().strip("\0").split("\0"))


def write_to(folder: Path) -> None:
    """Write the files of the last commit into a folder, with modes that do not depend on this machine."""
    with tarfile.open(fileobj=io.BytesIO(_git("archive", "HEAD"))) as archive:
        archive.extractall(folder, filter="data")
    for path in folder.rglob("*"):
        path.chmod(0o755 if path.is_dir() or path.stat().st_mode & 0o100 else 0o644)


def changes() -> list[str]:
    """Return the files that differ from the last commit."""
    return _git("status", "--porcelain").decode().splitlines()


def _git(*words: str) -> bytes:
    try:
        return subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True).stdout
    except (OSError, subprocess.CalledProcessError):
        sys.exit("A release is made from a commit: run this in a clone of the repository.")
