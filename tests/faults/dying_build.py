"""A builder that is killed at its n-th statement, for every n, and around its end: `python -m tests.faults.dying_build URL NAME EVERY ROOT`.

Each round asks for a build, starts a whole worker, and is killed: just before or after the rename that completes the build,
when the handler has returned, or at the n-th statement of all its threads. The files and the database agree, another worker
is started, and it is completed once.
"""

import os
import signal
import string
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from holdfast import App
from holdfast.builds.build import BuildState
from holdfast.worker import builder
from holdfast.worker.building.folder import BuildFolder
from tests.builds.making import Repository
from tests.builds.yard import Yard
from tests.faults.dying import BEAT, DIED, DONE, LOST_AFTER, NEVER, die_at, forked, note, noted, wait_while
from tests.invariants import check_invariants, final_rows

POINTS = ("before the rename", "after the rename", "after the return")
AT_A_TIME = 25  # rounds in an instance
LIVES = 2  # to their end, to count statements: no two have as many
BUILD = '[steps.test]\nrun = ["echo round {number} > report.txt"]\noutputs = {{ report = "report.txt" }}\n'


def main(url: str, name: str, every: int, root: Path) -> int:
    """How often it died at a statement."""
    place = Place(url, f"{name}_life", root / "life")
    count = max(statements_of_a_life(place) for _ in range(LIVES))
    deaths = 0
    for rounds, last in enumerate((*POINTS, *range(1, count + 1, every))):
        part = string.ascii_lowercase[rounds // AT_A_TIME]
        place = Place(url, f"{name}_{part}", root / part)
        place.commit(rounds)
        code = forked(lambda place=place, last=last: live(place, last))
        assert code == DIED or (code == DONE and last not in POINTS), f"{last}: a life ended with {code}"
        assert forked(lambda place=place, last=last: take_over(place, last)) == DONE, f"after a death at {last}"
        deaths += code == DIED and last not in POINTS
    return deaths


class Place:
    """An instance, with a repository and a folder of builds of its own."""

    def __init__(self, url: str, name: str, root: Path) -> None:
        self.url, self.name, self.root = url, name, root
        self.repository = root / "repository"
        self.builds = root / "builds"
        self.commits, self.asked, self.statements = root / "commits", root / "asked", root / "statements"

    def commit(self, number: int) -> None:
        new = not self.repository.exists()
        repository = Repository(self.repository) if new else Repository.__new__(Repository)
        repository.path = self.repository
        note(self.commits, repository.commit(BUILD.format(number=number)), number)

    def yard(self) -> Yard:
        app = App(self.url, name=self.name, heartbeat=BEAT, lost_after=LOST_AFTER)
        return Yard(app, self.root, SimpleNamespace(path=self.repository))

    def check(self, final_before: Any = None) -> None:
        check_invariants(self.url, self.name, (), final_before, self.builds)


def statements_of_a_life(place: Place) -> int:
    place.commit(0)
    assert forked(lambda: live(place, NEVER)) == DONE
    return int(noted(place.statements)[-1])


def live(place: Place, last: int | str) -> int:
    """Ask for a build and perform it, until the last moment."""
    yard = place.yard()
    with yard.app as app:
        app.find(limit=1)
        statements = die_at(NEVER if last in POINTS else int(last), app.store)
        die_around_the_end(str(last))
        note(place.asked, yard.ask(noted(place.commits)[-1].split()[0]).build.id)
        work(place, yard)
    note(place.statements, statements())
    return DONE


def die_around_the_end(last: str) -> None:
    complete, conclude = BuildFolder.complete, builder.conclude

    def around(call: Callable[..., Any], before: str, after: str) -> Callable[..., Any]:
        def dying(*given: Any) -> Any:
            if last == before:
                os.kill(os.getpid(), signal.SIGKILL)
            found = call(*given)
            if last == after:
                os.kill(os.getpid(), signal.SIGKILL)
            return found

        return dying

    BuildFolder.complete = around(complete, *POINTS[:2])  # type: ignore[method-assign]
    builder.conclude = around(conclude, "", POINTS[2])


def work(place: Place, yard: Yard) -> None:
    with yard.app.worker_for_ever(concurrency=4):
        yard.projects.hold_folder()
        wait_while(place.url, place.name, "select * from {job} where state <> 'final'")


def take_over(place: Place, last: int | str) -> int:
    place.check()
    before = final_rows(place.url, place.name)
    yard = place.yard()
    with yard.app:
        if last in POINTS:
            assert yard.projects.builds(limit=1)[0].build_state is BuildState.BUILDING
        work(place, yard)
        place.check(before)
        check_ends(place, yard)
    return DONE


def check_ends(place: Place, yard: Yard) -> None:
    """All that were asked for succeeded, by one attempt more for a death, and their files are there."""
    builds = yard.projects.builds(limit=1000)
    assert {build.id for build in builds} >= set(map(int, noted(place.asked))), "I1: a build was asked for and is gone"
    numbers = dict(line.split() for line in noted(place.commits))
    for build in builds:
        assert (build.outcome, build.attempt <= 2) == ("success", True), f"{build}"
        assert (yard.folder(build) / "generated" / "report").read_text() == f"round {numbers[build.commit]}\n"
    for build in builds[:1]:
        yard.stands(build.id, BuildState.CACHED)


if __name__ == "__main__":
    url, name, every, root = sys.argv[1:]
    print(main(url, name, int(every), Path(root)))
