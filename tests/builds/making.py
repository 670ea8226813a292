"""Real git repositories, and builds of them."""

import asyncio
import os
import subprocess
import sys
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from holdfast.builds.order import BUILD_FILE, BuildOrder, Sandbox
from holdfast.builds.result import BuildResult, StepChange
from holdfast.clock import monotonic, sleep
from holdfast.worker import builder

PATIENCE = 60.0  # seconds; nothing is measured, a hung test only ends
COMMITTER = ("-c", "user.name=Ann", "-c", "user.email=ann@example.org", "-c", "init.defaultBranch=main")


class Repository:
    """A repository on the disk that commits are made in."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir(parents=True)
        self.git("init", "--quiet")

    def git(self, *arguments: str) -> str:
        env = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
        done = subprocess.run(
            ["git", *COMMITTER, "-C", str(self.path), *arguments], env=env, capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    def commit(self, build_file: str | None, files: Mapping[str, str] | None = None) -> str:
        """Commit a build file and others; the commit's name."""
        for name, text in {**({BUILD_FILE: build_file} if build_file is not None else {}), **(files or {})}.items():
            (self.path / name).parent.mkdir(parents=True, exist_ok=True)
            (self.path / name).write_text(text)
        self.git("add", "--all")
        self.git("commit", "--quiet", "--allow-empty", "--message", "a change")
        return self.git("rev-parse", "HEAD")

    def order(self, build_file: str | None, files: Mapping[str, str] | None = None, **more: Any) -> BuildOrder:
        """The order for a new commit with these files."""
        commit = self.commit(build_file, files)
        return order_of(self, commit, **more)


def order_of(repository: Repository, commit: str, **more: Any) -> BuildOrder:
    address = f"file://{repository.path}"
    told = {"project": "demo", "branch": "main", "sandbox": Sandbox.NONE, "repository": address, "timeout": 300.0}
    return BuildOrder(commit=commit, **{**told, **more})


def one_step(*lines: str, **keys: str) -> str:
    """A build file with the step `only`. Lines are written as literal texts, so they must not hold '''."""
    text = "[steps.only]\nrun = [\n" + "".join(f"'''{line}''',\n" for line in lines) + "]\n"
    return text + "".join(f"{key} = {value}\n" for key, value in keys.items())


def build(order: BuildOrder, folder: Path, tell: Callable[[StepChange], None] = lambda change: None) -> BuildResult:
    """Perform it to its end."""
    return asyncio.run(builder.perform(order, folder, tell))


def log_of(folder: Path) -> str:
    return (folder / "log").read_text(errors="replace")


def unique() -> str:
    """Seconds to sleep that no other process sleeps: a sleeper is known by them."""
    return f"1000.{uuid.uuid4().int % 10**12:012d}"


def alive(word: str) -> list[int]:
    """Processes that have this word among their arguments. Zombies have none."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                arguments = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if word.encode() in arguments:
                found.append(int(entry.name))
    return found


def wait_until(true: Callable[[], object], what: str) -> None:
    until = monotonic() + PATIENCE
    while not true():
        assert monotonic() < until, f"it never came: {what}"
        sleep(0.01)


# A build in a sandbox does not see the interpreter of the tests unless it may read its folder.
PYTHON = {"readable": (sys.base_prefix,), "path": (f"{sys.base_prefix}/bin",)}


def python(program: str, *arguments: str) -> str:
    """A line that runs a program of the commit."""
    return " ".join([f"{sys.base_prefix}/bin/python3", program, *arguments])
