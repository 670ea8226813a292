"""What a build without a sandbox finds out about its builder: no variable, no memory, and nothing in what it leaves."""

import base64
import functools
import json
import os
import shutil
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from msgspec import Struct

from holdfast import App
from holdfast.builds.build import Build
from holdfast.builds.forges import Wanted
from holdfast.builds.project import BuildSettings, Project
from holdfast.projects import Projects
from tests.builds.making import Repository, one_step
from tests.builds.yard import until

pytestmark = pytest.mark.claim("B6")

NOBODY = 65534
SETTINGS = """
heartbeat = 0.5
lost_after = 2
[builds]
folder = "builds"
[projects.demo]
repository = "file://{root}/repository"
github = {{ secret_env = "DEMO_HOOK" }}
status = {{ forge = "github", repository = "me/demo", url = "http://127.0.0.1:9", token_env = "DEMO_STATUS" }}
secrets = {{ TOKEN = {{ secret_file = "token" }} }}
sandbox = "none"
[projects.other]
repository = "file://{root}/repository"
github = {{ secret_env = "OTHER_HOOK" }}
secrets = {{ TOKEN = {{ secret_env = "OTHER_TOKEN" }} }}
sandbox = "none"
"""
# Prints how many processes it could read, and which of these have the mark; then what it can open of those above it.
SPY = """
import os
mark, read, found = b"HALF1" + b"HALF2", 0, []
for name in filter(str.isdigit, os.listdir("/proc")):
    try:
        with open(f"/proc/{name}/environ", "rb") as file:
            variables = file.read()
        with open(f"/proc/{name}/cmdline", "rb") as file:
            command = file.read().replace(b"\\0", b" ").decode("utf-8", "replace")
    except OSError:
        continue
    read += 1
    found += [command[:200]] * (mark in variables)
print("read", read > 0, "found", found)
above, opened = os.getppid(), []
while above > 1 and above != WATCHER:
    with open(f"/proc/{above}/stat") as file:
        parent = int(file.read().rpartition(")")[2].split()[1])
    with open(f"/proc/{above}/cmdline", "rb") as file:
        command = file.read().replace(b"\\0", b" ").decode("utf-8", "replace").strip()
    try:
        open(f"/proc/{above}/mem", "rb").close()
        opened.append(command[-60:])
    except OSError:
        pass
    above = parent
print("opened", [each for each in opened if "spy.py" not in each])
"""


class Place:
    """A folder with settings, in which a worker builds as a user of its own."""

    def __init__(self, root: Path, user: "User") -> None:
        self.root, self.user = root, user
        self.repository = Repository(root / "repository")
        # In every secret; the steps put it together, for a log that has it shows nothing.
        self.mark = uuid.uuid4().hex
        named = ("OTHER_TOKEN", "OTHER_HOOK", "DEMO_HOOK", "DEMO_STATUS", "PGPASSWORD")
        self.secrets = {name: f"{name}-{self.mark}-x" for name in named}
        database = {"engine": "sqlite", "database": f"{root}/jobs.db", "password": f"database-{self.mark}"}
        self.url = json.dumps(database)
        (root / "holdfast.toml").write_text(SETTINGS.format(root=root))
        (root / "token").write_text("own-token")

    def build(self, build_file: str, **files: str) -> tuple[Build, str]:
        """Have a worker build a commit; the build and its log."""
        halves = {"HALF1": self.mark[:16], "HALF2": self.mark[16:], "WATCHER": str(os.getpid())}
        spy = {"spy.py": functools.reduce(lambda text, each: text.replace(*each), halves.items(), SPY)}
        commit = self.repository.commit(build_file, {**spy, **files})
        demo = Project(name="demo", repository=f"file://{self.repository.path}")
        wanted = Wanted(commit=commit, branch="main", ref="refs/heads/main")
        with App(self.url, name="site") as app:
            projects = Projects(app, BuildSettings(projects={"demo": demo}), self.root, {})
            made = projects.ask(demo, wanted).build
            self._own()
            worker = self._worker()
            try:
                until(lambda: worker.poll() is not None or app.get(made.job_id).final, 120, what="the build is over")
            finally:
                worker.terminate()
                worker.wait(60)
            job, build = app.get(made.job_id), projects.look(made.id)
            said = (self.root / "worker.log").read_text()
            assert job.final, said
            told = [str(job), str(job.attempts()), str(job.log()), str(build), str(projects.result(build)), said]
        assert [text for text in told if self.mark in text] == []
        return build, (self.root / "builds" / str(made.job_id) / "log").read_text()

    def _own(self) -> None:
        for path in (self.root, *self.root.rglob("*")):
            os.chown(path, self.user.id, self.user.id, follow_symlinks=False)

    def _worker(self) -> "subprocess.Popen[bytes]":
        env = {**self.user.environment, **self.secrets, "HOLDFAST_URL": self.url, "HOLDFAST_INSTANCE": "site"}
        command = [*self.user.becomes, self.user.python, "-m", "holdfast", "worker", "--processes", "2"]
        with (self.root / "worker.log").open("wb") as log:
            return subprocess.Popen(command, cwd=self.root, env=env, stdout=log, stderr=log)


class User(Struct, frozen=True):
    """Who builds, and how."""

    id: int
    python: str = sys.executable
    becomes: tuple[str, ...] = ()

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}

    def can_build(self) -> bool:
        inner = (
            "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import holdfast.cli.working'], check=True)"
        )
        command = [*self.becomes, self.python, "-c", inner]
        return subprocess.run(command, cwd="/", env=self.environment, capture_output=True, check=False).returncode == 0


def without_rights() -> User:
    """Root with the rights of every other user: it may read its own files."""
    return User(0, becomes=("setpriv", "--bounding-set=-all", "--inh-caps=-all"))


def other_user() -> User:
    """A user who cannot read this user's files, and may need another Python."""
    becomes = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups")
    pythons = (sys.executable, shutil.which("python3", path="/usr/bin:/usr/local/bin") or sys.executable)
    return next((user for python in pythons if (user := User(NOBODY, python, becomes)).can_build()), User(NOBODY))


@pytest.fixture(params=["this user", "this user without rights", "another user"])
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    user = User(os.getuid())
    if request.param != "this user":
        if os.getuid() != 0 or shutil.which("setpriv") is None:
            pytest.skip("only root can have a build run with other rights")
        user = other_user() if request.param == "another user" else without_rights()
        if not user.can_build():
            pytest.skip("no Python here can be run with these rights")
    with tempfile.TemporaryDirectory(prefix="holdfast-place-") as folder:
        yield Place(Path(folder), user)


@pytest.mark.long
def test_no_process_shows_a_build_the_secrets_of_its_builder(place: Place) -> None:
    build, log = place.build(one_step('test -n "$TOKEN"', f"{place.user.python} spy.py"))
    assert build.outcome == "success", log
    assert "read True found []\n" in log
    if place.user.becomes or place.user.id != 0:  # with all rights root reads all memory
        assert "opened []\n" in log


@pytest.mark.long
def test_secrets_of_other_projects_are_in_nothing_that_a_build_leaves(place: Place) -> None:
    secrets = [*place.secrets.values(), f"database-{place.mark}"]
    said = [form for secret in secrets for form in (secret, quote(f"a/{secret}", safe=""), in_base64(secret))]
    build, log = place.build(one_step("cat said.txt", f"exit 3 # {secrets[0]}"), **{"said.txt": "\n".join(said)})
    assert (build.outcome, "***" in str(build.steps)) == ("failed", True), log
    assert log.count("***") > len(said)
    assert [form for form in (place.mark, *said) if form in log] == []


def test_an_output_is_not_named_by_a_secret(place: Place) -> None:
    name = place.secrets["OTHER_TOKEN"]
    file = one_step("touch made") + f'outputs = {{ "{name}" = "made" }}\n'
    build, log = place.build(file)
    assert "step only: output ***: its name holds a secret" in str(build.error), log


def in_base64(text: str) -> str:
    return base64.b64encode(f"user:{text}".encode()).decode()
