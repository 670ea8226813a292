"""A builder that dies around the rename that completes a build: `python -m tests.faults.dying_build ROOT URL NAME REPOSITORY WHEN`."""

import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from holdfast import App
from holdfast.worker.building.folder import BuildFolder
from tests.builds.yard import Yard
from tests.faults.dying import DIED


def main(root: Path, url: str, name: str, repository: Path, when: str) -> None:
    complete = BuildFolder.complete

    def dying(self: Any, result: Any) -> None:
        if when == "before the rename":
            os._exit(DIED)
        complete(self, result)
        if when == "after the rename":
            os._exit(DIED)

    BuildFolder.complete = dying  # type: ignore[method-assign]
    with App(url, name=name) as app:
        yard = Yard(app, root, SimpleNamespace(path=repository))
        for worker in app.store.workers():
            app.store.lose(worker.id)  # as its sweeper would when it was missed
        yard.app.run_until_idle()


if __name__ == "__main__":
    root, url, name, repository, when = sys.argv[1:]
    main(Path(root), url, name, Path(repository), when)
