"""From a signed webhook to the first line that its build prints: a server and a builder, each a process, and a repository on the disk."""

import contextlib
import http.client
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from msgspec import Struct

from bench.places import Place
from bench.processes import ENVIRONMENT, Stalled, Started, end_all, wait_for
from holdfast.builds.sending import Facts, delivery

SECRET = "measured"
LINE = "hello from the build"
BUILD_FILE = f'[steps.hello]\nrun = ["echo {LINE}"]\n'
GAP = 0.3  # seconds between two deliveries: nobody is at work any more
SETTINGS = """
url = "{url}"
instance = "webhooks"

[projects.demo]
repository = "file://{repository}"
github = {{ secret_env = "BENCH_SECRET" }}
"""


class Waited(Struct, frozen=True):
    """Milliseconds since the webhook was sent."""

    answered: float
    begun: float  # the log has its first line
    printed: float  # and the first that the build printed


def waits(place: Place, count: int) -> Waited:
    """Medians of so many deliveries, each of a commit of its own; the first one, which warms up, is not counted."""
    root = place.folder / "webhooks"
    root.mkdir()
    repository = root / "repository"
    commits = [*_commits(repository, count + 1)]
    (root / "holdfast.toml").write_text(SETTINGS.format(url=place.fresh(), repository=repository))
    with _site(root) as address:
        _push(address, root, commits[0])
        found = [_push(address, root, commit) for commit in commits[1:]]
    return Waited(*(median(getattr(each, name) for each in found) for name in Waited.__struct_fields__))


def _commits(repository: Path, count: int) -> Iterator[str]:
    repository.mkdir()
    (repository / "holdfast.build.toml").write_text(BUILD_FILE)
    _git(repository, "init", "--quiet")
    _git(repository, "add", "--all")
    for number in range(count):
        _git(repository, "commit", "--quiet", "--allow-empty", "--message", f"change {number}")
        yield _git(repository, "rev-parse", "HEAD")


def _git(repository: Path, *arguments: str) -> str:
    who = ("-c", "user.name=Ann", "-c", "user.email=ann@example.org", "-c", "init.defaultBranch=main")
    done = subprocess.run(["git", *who, "-C", str(repository), *arguments], capture_output=True, text=True, check=True)
    return done.stdout.strip()


@contextlib.contextmanager
def _site(root: Path) -> Iterator[str]:
    """A server and a builder; the server's address."""
    environment = {**ENVIRONMENT, "BENCH_SECRET": SECRET}
    started: list[Started] = []
    try:
        for verb in (("serve", "--port", "0"), ("worker",)):
            command = [sys.executable, "-m", "holdfast", *verb, "--config", str(root / "holdfast.toml"), "--json"]
            started.append(Started(command, root / f"{verb[0]}.log", environment=environment))
        output = started[0].process.stdout
        assert output
        told = output.readline()
        if not told:
            raise Stalled(f"the server did not start: {started[0].log.read_text()[-600:]}")
        yield json.loads(told)["address"].removeprefix("http://")
    finally:
        end_all(started)


def _push(address: str, root: Path, commit: str) -> Waited:
    time.sleep(GAP)
    headers, body = delivery("github", "push", Facts(commit=commit), SECRET, commit)
    connection = http.client.HTTPConnection(address, timeout=30)
    began = time.monotonic()
    connection.request("POST", "/hooks/github/demo", body, headers)
    told = json.loads(connection.getresponse().read())
    answered = time.monotonic()
    connection.close()
    log = root / "builds" / str(told["job_id"]) / "log"
    begun = wait_for(lambda: _size(log) > 0, 30, "the log begins", every=0.001)
    printed = wait_for(lambda: _printed(log), 30, "the build prints a line", every=0.001)
    wait_for(lambda: (log.parent / "completed").exists(), 30, "the build is completed")
    return Waited(*((moment - began) * 1000 for moment in (answered, begun, printed)))


def _size(log: Path) -> int:
    try:
        return log.stat().st_size
    except FileNotFoundError:
        return 0


def _printed(log: Path) -> bool:
    """The line itself, not the one that says what is run."""
    return f"\n{LINE}\n".encode() in log.read_bytes()
