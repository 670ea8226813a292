"""What `holdfast doctor` looks at where the settings have projects."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from holdfast.builds.order import Sandbox
from holdfast.builds.project import BuildSettings, Project
from holdfast.jobs.secrets import SHORTEST
from holdfast.projects import disk_shortage, limit_words, secret_in
from holdfast.worker.building.control_group import find_parent
from holdfast.worker.building.sandbox import check_sandbox

Answer = tuple[str, bool, str]


def checks(settings: BuildSettings, root: Path) -> Iterator[Answer]:
    """(name, whether it is well, what was found)."""
    git = shutil.which("git")
    yield "git", git is not None, git or "not on PATH; builds clone with it"
    yield "bubblewrap", True, _sandbox()
    yield "limits of builds", True, f"in a worker started here, {limit_words(find_parent())}"
    yield _folder(root / settings.folder, settings.disk_reserve)
    for project in settings.projects.values():
        yield f"project {project.name}", *_project(project, root)


def warnings(settings: BuildSettings, root: Path) -> Iterator[tuple[str, str]]:
    """(name, what works and should be changed)."""
    bare = [project.name for project in settings.projects.values() if not _has_sandbox(project)]
    if len(bare) > 1:
        yield (
            "sandbox",
            f"projects {', '.join(bare)} are built without a sandbox. A build of one can read files of this user, and as root the "
            "memory of the builder, with the secrets of the others. Install bubblewrap, or build each as a user of its own.",
        )
    reached = [project.name for project in settings.projects.values() if _lets_strangers_out(project)]
    if reached:
        yield (
            "strangers",
            f"projects {', '.join(reached)} give strangers' code this machine's network, or no sandbox. It reaches what listens on "
            'this machine, and in a cloud the metadata address 169.254.169.254. Remove `network = "host"` and `sandbox = "none"`, '
            "or have a firewall refuse the user of the builder.",
        )
    values = {secret.words: secret_in(secret, root, os.environ) for secret in settings.all_secrets}
    short = [words for words, text in values.items() if text is not None and len(text) < SHORTEST]
    if short:
        yield (
            "secrets",
            f"shorter than {SHORTEST} characters, and so not taken out of logs: {', '.join(short)}. Make them longer.",
        )


def _lets_strangers_out(project: Project) -> bool:
    open_to_all = project.sandbox is Sandbox.NONE or project.gives_network(trusted=False)
    return open_to_all and project.strangers != "never" and "pull_request" in project.events


def _sandbox() -> str:
    with tempfile.TemporaryDirectory(prefix="holdfast-doctor-") as folder:
        missing = check_sandbox(Path(folder))
    if missing is not None:
        return f"{missing}; builds that ask for it, and strangers', are refused"
    return f"{shutil.which('bwrap')}: works"


def _has_sandbox(project: Project) -> bool:
    installed = shutil.which("bwrap") is not None
    return project.sandbox is not Sandbox.NONE and (installed or project.sandbox is Sandbox.BUBBLEWRAP)


def _folder(folder: Path, reserve: int) -> Answer:
    """Whether builds can be written there: in it, or where it will be made."""
    shortage = disk_shortage(folder, reserve)
    if shortage is not None:
        return "folder of builds", False, f"No build starts: {shortage}"
    place = next(each for each in (folder, *folder.absolute().parents) if each.exists())
    try:
        with tempfile.TemporaryFile(dir=place):
            return "folder of builds", True, str(folder)
    except OSError as error:
        return (
            "folder of builds",
            False,
            f"{folder}: {error.strerror}. Every process that builds or serves writes there.",
        )


def _project(project: Project, root: Path) -> tuple[bool, str]:
    missing = sorted({each.words for each in project.all_secrets if secret_in(each, root, os.environ) is None})
    troubles = [f"nothing in {', '.join(missing)}"] if missing else []
    if not project.hooks:
        troubles.append("no forge has a secret, so it has no hook")
    if project.sandbox is Sandbox.BUBBLEWRAP and shutil.which("bwrap") is None:
        troubles.append("it asks for bubblewrap, and there is no `bwrap` on PATH")
    if (
        project.repository.startswith(("/", "file://"))
        and not Path(project.repository.removeprefix("file://")).exists()
    ):
        troubles.append(f"there is no repository at {project.repository}")
    return not troubles, "; ".join(troubles) or f"{project.repository}, hooks of {', '.join(project.hooks)}"
