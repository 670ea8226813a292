"""A worker that is killed at its n-th statement, again and again, until a run is done: `python -m tests.faults.dying URL NAME SEED`.

It forks, so that no death costs the start of an interpreter. Each child is a whole worker: it finds what the one before it
left, works on and is killed in the middle of some statement of some thread; what it had begun and not committed is rolled
back by the database. Between two deaths the invariants are checked.
"""

import itertools
import os
import random
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import holdfast.worker.worker  # noqa: F401  once for all lives
from holdfast import App
from tests.invariants import check_invariants
from tests.raw_sql import RawSql

DIED, DONE = -signal.SIGKILL, 0
NEVER = 0
BEAT, LOST_AFTER = 0.1, 0.4  # seconds: whoever takes over waits for them on PostgreSQL
PATIENCE = 60.0
WIDTH = 12
EARLY, LIVES = 100, 2  # the first children die before so many statements, when the run cannot be done yet
LATEST = 300  # statement at which later ones die: on PostgreSQL one needs so many until it misses the one before it


def make_app(url: str, name: str) -> App:
    """Every kind of step, each with a few tasks."""
    app = App(url, name=name, heartbeat=BEAT, lost_after=LOST_AFTER)
    workflow = app.workflow("w")

    def numbers(task: Any, cursor: int | None) -> Iterator[tuple[int, int]]:
        for number in range(0 if cursor is None else cursor + 1, WIDTH):
            yield number, number

    @workflow.step()
    def first(task: Any) -> None:
        task.publish(rows=WIDTH)
        task.repartition("packs", packs=(0, WIDTH - 1, 2))

    workflow.step(name="packs", after=["first"], shards=1, max_undone=4)(work)
    workflow.step(name="items", after=["first"], items=numbers, max_undone=5)(work)
    workflow.step(name="joined", after=["packs", "items"])(work)
    workflow.step(name="last", phase=1)(work)
    return app


def work(task: Any) -> None:
    assert task.params["rows"] == WIDTH


def main(url: str, name: str, seed: int) -> int:
    """How often it died."""
    luck, deaths = random.Random(seed), 0
    while True:
        last = luck.randrange(1, EARLY if deaths < LIVES else LATEST)
        code = forked(lambda last=last: live(url, name, last))
        if code == DONE:
            return deaths
        assert code == DIED, f"a child ended with {code}"
        deaths += 1


def forked(live: Callable[[], int]) -> int:
    """The exit code of a life in a process of its own."""
    child = os.fork()
    if not child:
        try:
            os._exit(live())
        except BaseException:
            traceback.print_exc()
        os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def live(url: str, name: str, last: int) -> int:
    """One life: until the run is done, or until the last statement."""
    check_invariants(url, name)
    with make_app(url, name) as app:
        die_at(last, app.store)
        with app.worker_for_ever(concurrency=4):
            wait_while(url, name, "select * from {run} where state = 'UNDONE'")
    check_invariants(url, name)
    return DONE


def die_at(last: int, store: Any) -> Callable[[], int]:
    """This process is killed at its last statement, counted from now on over all of its threads; how many there were."""
    numbers, text = itertools.count(1), type(store).text

    def counted(self: Any, *asked: Any) -> str:
        if next(numbers) == last:
            os.kill(os.getpid(), signal.SIGKILL)
        return text(self, *asked)

    type(store).text = counted  # type: ignore[method-assign]
    return lambda: next(numbers) - 1


def wait_while(url: str, name: str, question: str) -> None:
    """Until it finds nothing any more. A stranger asks: that is no statement of the worker's."""
    sql, ends = RawSql(url, name), time.monotonic() + PATIENCE
    try:
        while left := sql(question):
            assert time.monotonic() < ends, f"{left} are left"
            time.sleep(0.005)
    finally:
        sql.close()


def note(book: Path, *words: object) -> None:
    with book.open("a") as file:
        file.write(" ".join(map(str, words)) + "\n")


def noted(book: Path) -> list[str]:
    return book.read_text().splitlines() if book.exists() else []


if __name__ == "__main__":
    url, name, seed = sys.argv[1:]
    print(main(url, name, int(seed)))
