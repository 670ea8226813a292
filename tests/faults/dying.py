"""A program that dies at its n-th statement, again and again, until a run is done: `python -m tests.faults.dying URL NAME`.

It forks, so that no death costs the start of an interpreter. Each child takes over what the one before it left, works on
and is gone in the middle of some statement, as by kill -9; what it had begun and not committed is rolled back by the
database. Between two deaths the invariants are checked.
"""

import itertools
import os
import random
import sys
from collections.abc import Callable, Iterator
from typing import Any

from holdfast import App
from tests.invariants import check_invariants

DIED, DONE = 9, 0
WIDTH = 12
LATEST = 150  # statement at which a child dies


def make_app(url: str, name: str) -> App:
    """Every kind of step, each with a few tasks."""
    app = App(url, name=name)
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
        last = luck.randrange(1, LATEST)
        code = forked(lambda last=last: live(url, name, last))
        if code == DONE:
            return deaths
        assert code == DIED, f"a child ended with {code}"
        deaths += 1


def forked(live: Callable[[], int]) -> int:
    """The exit code of a life in a process of its own."""
    child = os.fork()
    if not child:
        os._exit(live())
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def live(url: str, name: str, last: int) -> int:
    """One life: until the run is done, or until the last statement."""
    check_invariants(url, name)
    with make_app(url, name) as app:
        for worker in app.store.workers():
            app.store.lose(worker.id)  # as its sweeper would when it was missed
        die_at(last, app.store)
        app.run_until_idle()
    check_invariants(url, name)
    return DONE


def die_at(last: int, store: Any) -> None:
    """This process is gone at its last statement, counted from now on."""
    numbers, text = itertools.count(1), type(store).text

    def counted(self: Any, *asked: Any) -> str:
        if next(numbers) == last:
            os._exit(DIED)
        return text(self, *asked)

    type(store).text = counted  # type: ignore[method-assign]


if __name__ == "__main__":
    url, name, seed = sys.argv[1:]
    print(main(url, name, int(seed)))
