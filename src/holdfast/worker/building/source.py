"""The code that is built: a clone of exactly one commit.

- git is called without a shell, with nobody's settings, hooks or helpers, and names stand behind `--`.
- Only the commit itself is fetched where the server gives it; else its ref, else every branch and tag.
- The address, which may hold a password, is not left in the clone.
"""

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from urllib.parse import unquote, urlsplit

from holdfast.builds.order import BuildOrder, is_ref
from holdfast.worker.building.keeping import Ended
from holdfast.worker.building.surroundings import of_git, own_path

ANSWER_WITHIN = 10.0  # seconds
HEAD = re.compile(rb"ref: refs/heads/([^\t\n]+)\tHEAD\n")
CREDENTIALS = re.compile(r"(?<=://)[^/@]*@")
STERN = (
    *("-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false", "-c", "core.symlinks=true"),
    *("-c", "protocol.ext.allow=never", "-c", "submodule.recurse=false", "-c", "fetch.recurseSubmodules=no"),
    *(
        "-c",
        "gc.auto=0",
        "-c",
        "maintenance.auto=false",
        "-c",
        "advice.detachedHead=false",
        "-c",
        "init.defaultBranch=main",
    ),
    *("-c", "credential.helper="),
)
Run = Callable[[Sequence[str], dict[str, str], Path], Ended]


class NoSource(Exception):
    """The code cannot be had. Nothing is known about it."""


def shown(address: str) -> str:
    """An address without the password in it."""
    return CREDENTIALS.sub("", address)


def credentials(address: str) -> list[str]:
    """What in an address must not come into a log: its password, or the name that is a token where there is no password."""
    if "://" not in address:
        return []
    parts = urlsplit(address)
    token = parts.username if parts.password is None and parts.scheme in ("http", "https") else None
    found = [each for each in (parts.password, token) if each]
    return [*found, *map(unquote, found)]  # git writes them as they are meant


def clone(order: BuildOrder, work: Path, run: Run) -> None:
    """Fill `source` in the work folder with the commit; `NoSource` if that cannot be. `run` performs a command."""
    git = shutil.which("git", path=os.pathsep.join(own_path()))
    if git is None:
        raise NoSource("there is no program `git` on this builder; install it")
    settings = work / "gitconfig"
    settings.write_text(_settings(order.repository))
    env, source = of_git(settings), work / "source"

    def call(*arguments: str) -> bool:
        return run((git, *STERN, *arguments), env, source).code == 0

    if not call("init", "--quiet", "--", "."):
        raise NoSource("git could not make a repository for it; the log says why")
    if not any(_fetched(call, wanted, order.commit) for wanted in _wanted(order)):
        raise NoSource(f"commit {order.commit} could not be fetched from {shown(order.repository)}; the log says why")
    if not call("checkout", "--quiet", "--force", "--detach", order.commit, "--"):
        raise NoSource(f"commit {order.commit} could not be checked out; the log says why")


_FETCH = ("--quiet", "--no-tags", "--no-recurse-submodules", "--no-write-fetch-head", "--force")


def _fetched(call: Callable[..., bool], wanted: tuple[str, ...], commit: str) -> bool:
    """Whether the commit is here after that. Who asked for the commit itself has it."""
    return call("fetch", *_FETCH, *wanted) and (wanted[-1] == commit or call("cat-file", "-e", f"{commit}^{{commit}}"))


def _wanted(order: BuildOrder) -> Iterator[tuple[str, ...]]:
    """What to ask the server for, from little to everything."""
    yield ("--depth=1", "--", order.repository, order.commit)
    refs = {order.ref, order.branch and f"refs/heads/{order.branch}", order.tag and f"refs/tags/{order.tag}"}
    for ref in sorted(ref for ref in refs if ref):
        yield ("--", order.repository, f"+{ref}:refs/holdfast/wanted")
    yield ("--", order.repository, "+refs/heads/*:refs/remotes/origin/*", "+refs/tags/*:refs/tags/*")


def default_branch(address: str) -> str | None:
    """Return the branch that HEAD of a repository names; None if the repository does not answer soon, or names none."""
    git = shutil.which("git", path=os.pathsep.join(own_path()))
    if git is None:
        return None
    with tempfile.TemporaryDirectory(prefix="holdfast-git-") as folder:
        settings = Path(folder) / "gitconfig"
        settings.write_text(_settings(address))
        try:
            answer = subprocess.run(
                [git, *STERN, "ls-remote", "--symref", "--", address, "HEAD"],
                cwd=folder,
                env=of_git(settings),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=ANSWER_WITHIN,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
    named = HEAD.match(answer.stdout)
    branch = None if named is None else named[1].decode("utf-8", "replace")
    return branch if branch is not None and is_ref(branch) else None


def _settings(address: str) -> str:
    """A repository on this machine may belong to another user: this one is meant to be read."""
    path = unquote(urlsplit(address).path) if address.startswith("file://") else address
    if not path.startswith("/"):
        return ""
    quoted = path.replace("\\", "\\\\").replace('"', '\\"')
    return "".join(f'[safe]\n\tdirectory = "{each}"\n' for each in (quoted, f"{quoted.rstrip('/')}/.git"))
