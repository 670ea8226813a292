"""The wheel in new environments: what it needs is installed by hash, and a job runs on each store.

- `PYTHONS="/path/python3.12 …"` names the Pythons; else those that the PATH or pyenv has are used, one of each version.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from shutil import which

from release.dependencies import EXTRAS, PYTHONS, ROOT
from tests.postgres_server import Server

VERSION = "import sys; print('%d.%d' % sys.version_info[:2])"
JOB = """
import sys
from importlib.resources import files
from holdfast import App

app = App(sys.argv[1], name="check")

@app.queue("mail").job
def send(to: str) -> str:
    return f"sent to {to}"

job = send.enqueue(to="ada")
assert app.run_until_idle() == 1
assert job.refresh().unwrap() == "sent to ada"
assert files("holdfast").joinpath("py.typed").is_file()
app.close()
"""
WEB = "from holdfast import App; from holdfast.web.app import create; create(App('sqlite://:memory:'))"


def check(wheel: Path) -> None:
    """Install the wheel everywhere; the program ends with what went wrong."""
    found = {version: python for python in _candidates() if (version := _version(python)) in PYTHONS}
    for version in PYTHONS:
        print(f"Python {version}: {found.get(version, 'not found, skipped')}", flush=True)
        if version in found:
            _check_base(wheel, found[version])
            _check_extras(wheel, found[version])
    if not found:
        sys.exit("No supported Python was found. Name one: PYTHONS=/path/to/python make dist.")


def _candidates() -> Iterator[str]:
    yield from os.environ.get("PYTHONS", "").split()
    for version in PYTHONS if "PYTHONS" not in os.environ else ():
        if on_path := which(f"python{version}"):
            yield on_path
        yield from map(str, sorted((Path.home() / ".pyenv" / "versions").glob(f"{version}.*/bin/python{version}")))


def _version(python: str) -> str | None:
    done = subprocess.run([python, "-c", VERSION], capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else None


def _check_base(wheel: Path, python: str) -> None:
    with tempfile.TemporaryDirectory(prefix="holdfast-install-") as folder:
        own = _environment(python, folder)
        _run(folder, own, "-m", "pip", "install", "--quiet", str(wheel), "-c", str(ROOT / "constraints.txt"))
        _run(folder, own, "-c", JOB, "sqlite:///jobs.db")
        _run(folder, own, "-m", "holdfast", "version")
        print("  without extras: a job ran on SQLite", flush=True)


def _check_extras(wheel: Path, python: str) -> None:
    with tempfile.TemporaryDirectory(prefix="holdfast-install-") as folder:
        own = _environment(python, folder)
        hashes = str(ROOT / "constraints-hashes.txt")
        _run(folder, own, "-m", "pip", "install", "--quiet", "--require-hashes", "-r", hashes)
        _run(
            folder,
            own,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--no-deps",
            f"holdfast[{','.join(EXTRAS)}] @ {wheel.as_uri()}",
        )
        _run(folder, own, "-m", "pip", "check")
        _run(folder, own, "-c", WEB)
        server = Server().start()
        try:
            _run(folder, own, "-c", JOB, server.url())
        finally:
            server.remove()
        print("  with all extras, by hash: a job ran on PostgreSQL, and the server can be made", flush=True)


def _environment(python: str, folder: str) -> str:
    _run(folder, python, "-m", "venv", "environment")
    return f"{folder}/environment/bin/python"


def _run(folder: str, *command: str) -> None:
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, env=kept)
    if done.returncode:
        sys.exit(f"`{' '.join(command)[:200]}` failed:\n{done.stdout}{done.stderr}")
