"""The shop's website: a small git repository that is built again with every change."""

import shutil
import subprocess
from itertools import count
from pathlib import Path

from holdfast.app import App
from holdfast.builds.forges import Wanted
from holdfast.builds.project import BuildSettings, Project
from holdfast.projects import Projects

BUILD_FILE = r"""
[steps.compile]
run = ['''for part in 1 2 3 4 5 6 7 8; do printf '\033[36mcompile\033[0m part %s of 8\n' $part; sleep 0.9; done''',
       "mkdir -p out && cp index.html out/index.html"]
outputs = { website = "out/index.html" }

[steps.links]
after = ["compile"]
run = ['''printf '\033[33mwarning\033[0m: /about is linked from nowhere\n'; sleep 1; printf '\033[32m42 links\033[0m, none is broken\n' ''']

[steps.test]
after = ["compile"]
run = ['''for number in 1 2 3 4 5 6; do printf '\033[32mpassed\033[0m test %s\n' $number; sleep 0.6; done''',
       "grep -q sale index.html || { printf '\\033[1;31mfailed\\033[0m: there is no sale on the page\\n'; exit 1; }"]
"""
PEOPLE = ("Ada <ada@example.org>", "Ben <ben@example.org>")
CHANGES = ("Announce the summer sale", "Take the banner down", "Bring the sale back", "Mend the footer")


class Website:
    """The repository, and the project that builds it."""

    def __init__(self, app: App, folder: Path) -> None:
        self.path = folder / "website"
        self.numbers = count()
        self._git("init", "--quiet", "--initial-branch", "main", str(self.path), inside=False)
        (self.path / "holdfast.build.toml").write_text(BUILD_FILE)
        self.project = Project(name="website", repository=f"file://{self.path}", timeout=120)
        settings = BuildSettings(folder=str(folder / "builds"), projects={self.project.name: self.project})
        self.projects = Projects(app, settings, folder, {})

    def change(self) -> int:
        """Somebody pushes; the build that comes of it."""
        number = next(self.numbers)
        title, author = CHANGES[number % len(CHANGES)], PEOPLE[number % len(PEOPLE)]
        words = "no offers today" if "down" in title else "summer sale"
        (self.path / "index.html").write_text(f"<h1>The shop</h1><p>{words}, change {number}</p>\n")
        self._git("add", ".")
        self._git("commit", "--quiet", "--author", author, "--message", title)
        commit = self._git("rev-parse", "HEAD")
        wanted = Wanted(commit=commit, ref="refs/heads/main", branch="main", title=title, author=author.split(" <")[0])
        return self.projects.ask(self.project, wanted, actor="customers").build.id

    def _git(self, *arguments: str, inside: bool = True) -> str:
        named = ("-c", "user.name=The shop", "-c", "user.email=shop@example.org", "-c", "commit.gpgsign=false")
        place = ("-C", str(self.path)) if inside else ()
        done = subprocess.run(["git", *place, *named, *arguments], capture_output=True, text=True, check=True)
        return done.stdout.strip()


def has_git() -> bool:
    return shutil.which("git") is not None
