"""The wheel and the source distribution of the last commit, in `dist/`, and their checks: `python -m release.distributions`.

- Each is built twice, in different folders, and must be the same to the byte; times in them are that of the commit.
- The source distribution has every file of the repository, the wheel every file of `src/`.
- With `--quick` that is all. Without it the wheel is installed in new environments, with and without extras, for every
  supported Python that is found, and runs a job in each.
"""

import gzip
import hashlib
import io
import os
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

from release import commit, installing
from release.dependencies import ROOT


def main() -> None:
    if changes := commit.changes():
        print(f"This builds the last commit, without {len(changes)} changed files, such as `{changes[0][3:]}`.")
    target = ROOT / "dist"
    target.mkdir(exist_ok=True)
    first, second = _built(), _built()
    for name, content in first.items():
        if content != second[name]:
            sys.exit(f"{name}: two builds of one commit differ.")
        (target / name).write_bytes(content)
        print(f"{hashlib.sha256(content).hexdigest()}  dist/{name}")
    wheel, source = sorted(first, key=lambda name: not name.endswith(".whl"))
    _check_source(first[source])
    _check_wheel(first[wheel])
    print("Both are complete, and a second build gave the same bytes.")
    if "--quick" not in sys.argv[1:]:
        installing.check(target / wheel)


def _built() -> dict[str, bytes]:
    with tempfile.TemporaryDirectory(prefix="holdfast-dist-") as name:
        source, made = Path(name) / "source", Path(name) / "made"
        source.mkdir()
        commit.write_to(source)
        moment = commit.moment()
        command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(made), str(source)]
        environment = os.environ | {"SOURCE_DATE_EPOCH": str(moment)}
        done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=name)
        if done.returncode:
            sys.exit(f"The build failed:\n{done.stdout}{done.stderr}")
        found = {each.name: each.read_bytes() for each in made.iterdir()}
    return {name: content if name.endswith(".whl") else _settled(content, moment) for name, content in found.items()}


def _settled(content: bytes, moment: int) -> bytes:
    """A source distribution whose bytes depend on its files alone. setuptools writes the times and owners of this machine."""
    packed = io.BytesIO()
    with (
        tarfile.open(fileobj=io.BytesIO(content)) as given,
        gzip.GzipFile("", "wb", fileobj=packed, mtime=moment) as outer,
        tarfile.open(fileobj=outer, mode="w", format=tarfile.PAX_FORMAT) as made,
    ):
        for member in sorted(given.getmembers(), key=lambda each: each.name):
            member.mtime, member.uid, member.gid, member.uname, member.gname = moment, 0, 0, "", ""
            member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
            member.pax_headers = {}
            made.addfile(member, given.extractfile(member) if member.isfile() else None)
    return packed.getvalue()


def _check_source(content: bytes) -> None:
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        found = {name.partition("/")[2] for name in archive.getnames()}
    _refuse_lacking("source distribution", commit.files() - found)


def _check_wheel(content: bytes) -> None:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        found = set(archive.namelist())
    _refuse_lacking("wheel", set(_in_wheel()) - found)
    strange = sorted(name for name in found - set(_in_wheel()) if ".dist-info/" not in name)
    if strange:
        sys.exit(f"The wheel has files that the repository has not: {', '.join(strange)}.")


def _in_wheel() -> Iterator[str]:
    for name in commit.files():
        if name.startswith("src/"):
            yield name.removeprefix("src/")


def _refuse_lacking(what: str, names: set[str]) -> None:
    if names:
        sys.exit(f"The {what} lacks {', '.join(sorted(names))}. Name them in MANIFEST.in or pyproject.toml.")


if __name__ == "__main__":
    main()
