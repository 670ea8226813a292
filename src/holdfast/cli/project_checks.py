"""What `holdfast doctor` looks at where the settings have projects."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from holdfast.builds.order import Sandbox
from holdfast.builds.project import BuildSettings, Project
from holdfast.projects import secret_in

Answer = tuple[str, bool, str]


def checks(settings: BuildSettings, root: Path) -> Iterator[Answer]:
    """(name, whether it is well, what was found)."""
    git = shutil.which("git")
    yield "git", git is not None, git or "not on PATH; builds clone with it"
    sandbox = shutil.which("bwrap")
    yield "bubblewrap", True, sandbox or "not on PATH; builds that ask for it, and strangers', are refused"
    yield _folder(root / settings.folder)
    for project in settings.projects.values():
        yield f"project {project.name}", *_project(project, root)


def _folder(folder: Path) -> Answer:
    """Whether builds can be written there: in it, or where it will be made."""
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
    where = [*project.hooks.values(), *project.secrets.values(), *([project.status.token] if project.status else [])]
    missing = sorted({each.words for each in where if secret_in(each, root, os.environ) is None})
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
