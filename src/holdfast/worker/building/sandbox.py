"""Where the steps of a build run: in bubblewrap, or as plain processes.

- In bubblewrap a build sees the system's programs, read-only, and its own working folder as `/build`: no other build, no
  home, no database, no settings; no process but its own; a network only where the order says so. It has no rights of root,
  also if the worker has, and can make no namespace in which it would get them.
- A sandbox that was asked for and does not work is `NoSandbox`; nothing is ever run outside it instead.
"""

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from holdfast.builds.order import BuildOrder, Sandbox
from holdfast.worker.building.memory import SHARED_FOLDER
from holdfast.worker.building.surroundings import SYSTEM_PATH, own_path
from holdfast.worker.building.syscall_filter import filter_program

# Runs each of its arguments in a shell of its own, after saying on descriptor 9 which one it is.
DRIVER = """
bold=$1 plain=$2 n=0
shift 2
for line do
    n=$((n + 1))
    echo "$n" >&9
    printf '%s$ %s%s\\n' "$bold" "$line" "$plain"
    /bin/sh -c "$line" 9>&- || exit
done
"""
BOLD, PLAIN = "\x1b[1m", "\x1b[0m"
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
STORES = ("/nix/store", "/gnu/store")
# Of /etc only what programs need to run: there are keys and passwords in the rest.
SETTINGS = (
    *("alternatives", "ca-certificates", "ca-certificates.conf", "crypto-policies", "fonts", "gai.conf", "group"),
    *("host.conf", "hosts", "java-17-openjdk", "java-21-openjdk", "ld.so.cache", "ld.so.conf", "ld.so.conf.d"),
    *("locale.alias", "localtime", "login.defs", "magic", "mime.types", "nsswitch.conf", "os-release", "passwd"),
    *("pki/ca-trust", "pki/tls/cert.pem", "pki/tls/certs", "protocols", "resolv.conf", "services", "ssl/certs"),
    *("ssl/cert.pem", "ssl/openssl.cnf", "terminfo", "timezone"),
)
INSIDE = "/build"
FILTER_DESCRIPTOR = 7
Proven = set[
    tuple[str, ...]
]  # sandboxes that have worked: they are not tried again for the next build, which takes 10 ms
PROBE_SECONDS = 20


class NoSandbox(Exception):
    """A sandbox was asked for and cannot be had."""


class Runner(Protocol):
    """Turns lines for the shell into a command."""

    name: str
    source: str  # the working copy, as the steps see it
    home: str
    temporary: str
    path: tuple[str, ...]
    shared_folder: str | None  # where its commands share memory with other programs of this user

    def command(self, lines: Sequence[str], cwd: str, colours: bool) -> list[str]: ...

    def start_folder(self, cwd: str) -> Path:
        """Where the command is started."""
        ...


def choose(order: BuildOrder, work: Path, source: Path, builds: Path, proven: Proven) -> Runner:
    """The runner that the order asks for; `NoSandbox` if it cannot be had. `builds` is where all builds are kept."""
    if order.sandbox is Sandbox.NONE:
        return Plain(work, source)
    sandbox, missing = _find_sandbox(order, work, source, builds, proven)
    if sandbox is not None:
        return sandbox
    if order.sandbox is Sandbox.AUTO and order.trusted:
        return Plain(work, source, f"no sandbox: {missing}")
    who = "its code is not trusted" if order.sandbox is Sandbox.AUTO else "one was asked for"
    raise NoSandbox(
        f"this build needs a sandbox ({who}) and there is none: {missing}. Install bubblewrap 0.8 or newer on this builder and "
        "let it use user namespaces."
    )


def check_sandbox(folder: Path) -> str | None:
    """Try the sandbox of a stranger's build in an empty folder. Return why there is none."""
    for name in ("source", "home", "tmp", "shm"):
        (folder / name).mkdir()
    order = BuildOrder(project="check", commit="0" * 40, repository="/", trusted=False, network=False)
    _, missing = _find_sandbox(order, folder, folder / "source", folder, set())
    return missing


def _find_sandbox(
    order: BuildOrder, work: Path, source: Path, builds: Path, proven: Proven
) -> tuple["Bubblewrap | None", str | None]:
    """The sandbox, or why there is none. Bubblewrap before 0.8, or setuid, cannot disable user namespaces; the filter does."""
    missing = None
    for disable_userns in (True, False):
        sandbox = Bubblewrap(order, work, source, builds, disable_userns=disable_userns)
        found = sandbox.missing(proven)
        if found is None and (sandbox.is_closed or order.trusted):
            return sandbox, None
        missing = missing or found
    return None, missing


class Plain:
    """Processes of the worker's own user, with limits."""

    shared_folder: str | None = SHARED_FOLDER

    def __init__(self, work: Path, source: Path, name: str = "no sandbox") -> None:
        self.name = name
        self.source, self.home, self.temporary = str(source), str(work / "home"), str(work / "tmp")
        self.path = own_path()
        self._source = source

    def command(self, lines: Sequence[str], cwd: str, colours: bool) -> list[str]:
        return _driven(lines, colours)

    def start_folder(self, cwd: str) -> Path:
        return self._source / cwd


class Bubblewrap:
    """A sandbox of namespaces, made for each step."""

    source, home, temporary = f"{INSIDE}/source", f"{INSIDE}/home", "/tmp"
    path: tuple[str, ...] = SYSTEM_PATH
    shared_folder: str | None = None

    def __init__(self, order: BuildOrder, work: Path, source: Path, builds: Path, disable_userns: bool) -> None:
        program = shutil.which("bwrap", path=os.pathsep.join(own_path()))
        filtered = _with_filter(work)
        self.is_closed = disable_userns or bool(filtered)  # a build in it can make no user namespace of its own
        self.name = "sandbox: bubblewrap"
        self.name += "" if order.network else ", no network"
        self.name += "" if self.is_closed else ", user namespaces are open"
        self._program = program or ""
        self._command = [*filtered, self._program, *(["--seccomp", str(FILTER_DESCRIPTOR)] if filtered else [])]
        covers = _covers((*order.protected, str(builds)), order.readable)
        self._options = [
            *("--unshare-all", "--die-with-parent", "--hostname", "build", "--cap-drop", "ALL"),
            *(["--unshare-user", "--disable-userns"] if disable_userns else []),
            *(["--share-net"] if order.network else []),
            *_system(),
            *("--proc", "/proc", "--dev", "/dev", "--dir", "/run", "--dir", "/var", "--symlink", "/tmp", "/var/tmp"),
            *("--bind", str(source), self.source, "--bind", str(work / "home"), self.home),
            *("--bind", str(work / "tmp"), self.temporary),
            *("--bind", str(work / "shm"), "/dev/shm"),  # on the disk, where it counts as the rest of the build does
            *(word for path in order.readable for word in ("--ro-bind-try", path, path)),
            *(word for place in covers for word in _cover(*place)),
            *("--remount-ro", "/dev", "--remount-ro", "/"),  # files there would be in memory, and count nowhere
        ]
        self._kind = (
            self._program,
            str(disable_userns),
            str(order.network),
            str(builds),
            *order.readable,
            *order.protected,
        )

    def missing(self, proven: Proven) -> str | None:
        """Why it does not work here; None if it does."""
        if not self._program:
            return "there is no program `bwrap` here"
        if self._kind in proven:
            return None
        try:
            tried = subprocess.run(
                [*self._command, *self._options, "--", "/bin/sh", "-c", ":"],
                capture_output=True,
                text=True,
                errors="replace",
                env={},
                stdin=subprocess.DEVNULL,
                timeout=PROBE_SECONDS,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return f"{self._program} does not run: {error}"
        if tried.returncode == 0:
            proven.add(self._kind)
            return None
        said = " ".join(tried.stderr.split())[:300]
        return f"{self._program} does not work: {said or f'exit code {tried.returncode}'}"

    def command(self, lines: Sequence[str], cwd: str, colours: bool) -> list[str]:
        folder = os.path.normpath(f"{self.source}/{cwd}")
        return [*self._command, *self._options, "--chdir", folder, "--", *_driven(lines, colours)]

    def start_folder(self, cwd: str) -> Path:
        return Path("/")


def _driven(lines: Sequence[str], colours: bool) -> list[str]:
    return ["/bin/sh", "-c", DRIVER, "sh", BOLD if colours else "", PLAIN if colours else "", *lines]


def _system() -> list[str]:
    """The system's programs, with its links as links."""
    found: list[str] = []
    for path in (*SYSTEM, *STORES):
        if os.path.islink(path):
            found += ["--symlink", os.readlink(path), path]
        elif os.path.isdir(path):
            found += ["--ro-bind", path, path]
    for name in SETTINGS:
        found += ["--ro-bind-try", f"/etc/{name}", f"/etc/{name}"]
    return found


def _with_filter(work: Path) -> list[str]:
    """The words in front of a command that open the filter of system calls for it; none without a filter for this machine."""
    program = filter_program()
    if program is None:
        return []
    path = work / "filter"
    path.write_bytes(program)
    return ["/bin/sh", "-c", f'exec {FILTER_DESCRIPTOR}<"$1" && shift && exec "$@"', "sh", str(path)]


def _covers(paths: Sequence[str], readable: Sequence[str]) -> list[tuple[str, str]]:
    """(what must not be seen, where the sandbox would show it)."""
    found: list[tuple[str, str]] = []
    for path in map(os.path.realpath, paths):
        for shown in (*SYSTEM, *STORES, *readable):
            real = os.path.realpath(shown)
            if (path == real or path.startswith(f"{real.rstrip('/')}/")) and not (
                shown in SYSTEM and os.path.islink(shown)
            ):
                found.append((path, os.path.normpath(f"{shown}/{os.path.relpath(path, real)}")))
    return found


def _cover(path: str, place: str) -> list[str]:
    if os.path.isdir(path):
        return ["--tmpfs", place, "--remount-ro", place]
    return ["--ro-bind", "/dev/null", place] if os.path.exists(path) else []
