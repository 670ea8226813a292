"""Server and builder as processes of their own, on a settings file, so that they can be killed."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from holdfast import App
from holdfast.builds.sending import Facts, delivery
from holdfast.clock import Clock
from holdfast.stores.contract import NewToken
from holdfast.web import secret
from tests.builds.making import Repository
from tests.builds.yard import GATED, SECRET, until

ROOT = Path(__file__).parents[2]
ADDRESS = re.compile(r"at (http://127\.0\.0\.1:\d+)\.")
SETTINGS = """
url = "{url}"
instance = "{instance}"
heartbeat = 0.5
lost_after = 2

[builds]
folder = "builds"
cache = 3

[projects.demo]
repository = "file://{repository}"
github = {{ secret_env = "HOOK_SECRET" }}
gitlab = {{ secret_env = "HOOK_SECRET" }}
gitea = {{ secret_env = "HOOK_SECRET" }}
generic = {{ secret_env = "HOOK_SECRET" }}
sandbox = "none"
"""


class Installation:
    """A settings file, a server and a builder; each may be killed, and another started in its place."""

    def __init__(self, root: Path, url: str, instance: str, repository: Repository) -> None:
        self.root, self.repository, self.gates = root, repository, count()
        self.url, self.instance, self.address = url, instance, ""
        (root / "holdfast.toml").write_text(SETTINGS.format(url=url, instance=instance, repository=repository.path))
        self.environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "HOOK_SECRET": SECRET}
        self.processes: list[subprocess.Popen[bytes]] = []
        self.token = ""

    @property
    def server(self) -> subprocess.Popen[bytes]:
        return self._living("serve") or self.serve()

    @property
    def builder(self) -> subprocess.Popen[bytes]:
        return self._living("worker") or self.work()

    def _living(self, command: str) -> subprocess.Popen[bytes] | None:
        living = [each for each in self.processes if command in each.args and each.poll() is None]
        return living[-1] if living else None

    def kill(self, *killed: subprocess.Popen[bytes]) -> None:
        """`kill -9`, and others in their places."""
        for each in killed:
            each.kill()
        for each in killed:
            each.wait(30)
        assert self.server
        assert self.builder

    def gated(self) -> tuple[str, Path]:
        """A commit whose build waits for a gate, and that gate."""
        number = next(self.gates)
        gate = self.root / f"gate-{number}"
        return self.repository.commit(GATED.format(gate=gate), {"report.txt": f"report {number}"}), gate

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        """A command of holdfast in a process of its own."""
        with (self.root / f"{arguments[0]}.log").open("ab") as log:
            made = subprocess.Popen(
                [sys.executable, "-m", "holdfast", *arguments],
                env=self.environment,
                cwd=self.root,
                stdout=log,
                stderr=log,
            )
        self.processes.append(made)
        return made

    def serve(self) -> subprocess.Popen[bytes]:
        log = self.root / "serve.log"
        before = len(log.read_text()) if log.exists() else 0
        made = self.start("serve", "--port", "0")
        told = until(
            lambda: ADDRESS.search(log.read_text()[before:]) or made.poll() is not None,
            what="the server tells its address",
        )
        assert isinstance(told, re.Match), log.read_text()[before:]
        self.address = told[1]
        return made

    def work(self) -> subprocess.Popen[bytes]:
        return self.start("worker", "--grace", "1")

    def holdfast(self, *arguments: str) -> Any:
        """What a command answers in JSON."""
        done = subprocess.run(
            [sys.executable, "-m", "holdfast", *arguments, "--json"],
            env=self.environment,
            cwd=self.root,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def push(self, commit: str, event: str = "push", **facts: Any) -> dict[str, Any]:
        """What the server answers to a signed delivery."""
        about, identity = Facts(commit=commit, **facts), f"{event} {commit} {facts}"
        headers, body = delivery("github", event, about, SECRET, identity, Clock().now())
        request = urllib.request.Request(f"{self.address}/hooks/github/demo", data=body, headers=headers, method="POST")
        with urllib.request.urlopen(request, timeout=30) as answer:
            found: dict[str, Any] = json.loads(answer.read())
            return found

    def request(self, path: str, method: str = "GET") -> Any:
        """An answer of the API; with a token that is made when it is first needed."""
        if not self.token:
            self.token = self._new_token()
        headers = {"Authorization": f"Bearer {self.token}"}
        request = urllib.request.Request(f"{self.address}{path}", headers=headers, method=method)
        return urllib.request.urlopen(request, timeout=60)

    def _new_token(self) -> str:
        token = secret.new()
        with App(self.url, name=self.instance) as app:
            app.store.add_token(NewToken(name="tests", hash=secret.hashed(token), scope="admin"), "tests")
        return token

    def build(self, build: int) -> dict[str, Any]:
        with self.request(f"/api/v1/builds/{build}") as answer:
            found: dict[str, Any] = json.loads(answer.read())
            return found

    def log(self, job: int) -> str:
        try:
            return (self.root / "builds" / str(job) / "log").read_text()
        except FileNotFoundError:
            return ""

    def until_over(self, build: int, timeout: float = 90) -> dict[str, Any]:
        """The build, when it is completed."""

        def over() -> dict[str, Any] | None:
            found = self.build(build)
            return found if found["outcome"] else None

        # To ask a server costs it and us far more than a look at a file.
        found: dict[str, Any] = until(over, timeout, what=f"build {build} is over", every=0.1)
        return found

    def close(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
            process.wait(30)
            if process.stdout is not None:
                process.stdout.close()


def begun(site: Installation, told: dict[str, Any]) -> None:
    """Wait until the build of a delivery waits for the gate."""
    until(lambda: "while [ ! -e" in site.log(told["job_id"]), what="the build runs")


class Watcher(threading.Thread):
    """Somebody who reads a log while it grows."""

    def __init__(self, site: Installation, build: int) -> None:
        super().__init__(daemon=True)
        self.text = b""
        self._site, self._build = site, build
        self.start()

    def run(self) -> None:
        with self._site.request(f"/api/v1/builds/{self._build}/log") as answer:
            while chunk := answer.read1(1 << 16):
                self.text += chunk

    def saw(self) -> str:
        """Everything, without colours; waits until the log is over."""
        self.join(60)
        assert not self.is_alive(), "the log does not end"
        return re.sub(r"\x1b\[[0-9;]*m", "", self.text.decode())


@contextmanager
def installation(root: Path, url: str, instance: str, repository: Repository) -> Iterator[Installation]:
    made = Installation(root, url, instance, repository)
    try:
        yield made
    finally:
        made.close()


def on_either(request: pytest.FixtureRequest, folders: pytest.TempPathFactory) -> Iterator[Installation]:
    """For all tests of a module, on the database that its fixture's parameter names."""
    root = folders.mktemp("site")
    url = f"sqlite:///{root}/jobs.db" if request.param == "sqlite" else request.getfixturevalue("prepared").new()
    with installation(root, url, "site", Repository(root / "repository")) as made:
        yield made
