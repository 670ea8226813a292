"""The workflows of the fault tests, as the test and its worker processes both have them.

Every call of a step's function leaves a line in the ledger, a file that the request names: the name of the task. So the
test knows what was called how often, whatever the database says.
"""

import asyncio
import os
import random
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from holdfast import App
from holdfast.compose import Workflow
from tests.faults.fleet import Worker

MOST_UNDONE = 200


def make_app(url: str, name: str, width: int, length: int, heartbeat: float = 0.5, lost_after: float = 2.0) -> App:
    """Three workflows: one step of `width` tasks between two others, `length` steps in a row, and `width` items."""
    app = App(url, name=name, heartbeat=heartbeat, lost_after=lost_after)
    make_fan(app, width)
    make_chain(app, length)
    make_list(app, width)
    return app


def make_fan(app: App, width: int) -> Workflow:
    fan = app.workflow("fan")
    fan.step(name="first")(called)
    fan.step(name="each", after=["first"], shards=width, max_undone=MOST_UNDONE, retries=0)(called)
    fan.step(name="last", after=["each"])(called)
    return fan


def make_chain(app: App, length: int) -> Workflow:
    chain = app.workflow("chain")
    for number in range(length):
        chain.step(name=f"link-{number}", after=[f"link-{number - 1}"] if number else [])(called)
    return chain


def make_list(app: App, width: int) -> Workflow:
    listed = app.workflow("list")

    def numbers(task: Any, cursor: int | None) -> Iterator[tuple[int, int]]:
        note(task)
        for number in range(0 if cursor is None else cursor + 1, width):
            yield number, number

    listed.step(name="each", items=numbers, max_undone=MOST_UNDONE)(called)
    listed.step(name="last", after=["each"])(called)
    return listed


async def called(task: Any) -> int | None:
    """Takes a moment; with a file `broken` beside the ledger every seventh task raises."""
    note(task)
    await asyncio.sleep(random.random() * task.params["seconds"])
    if task.index % 7 == 3 and (Path(task.params["ledger"]).parent / "broken").exists():
        raise ValueError("broken")
    return task.index  # type: ignore[no-any-return]


def note(task: Any) -> None:
    """One write at the end of the file: lines of several processes do not mix."""
    file = os.open(task.params["ledger"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, f"{task.name}\n".encode())
    os.close(file)


def calls(ledger: Path) -> Counter[str]:
    """How often each task was called."""
    return Counter(ledger.read_text().split()) if ledger.exists() else Counter()


def start(url: str, name: str, folder: Path, width: int, length: int, concurrency: int = 10) -> Worker:
    more = (str(width), str(length))
    return Worker(
        url, folder / "worker.log", name=name, concurrency=concurrency, module="tests.faults.workflow_fleet", more=more
    )


if __name__ == "__main__":
    url, name, concurrency, heartbeat, lost_after, width, length = sys.argv[1:]
    app = make_app(url, name, int(width), int(length), float(heartbeat), float(lost_after))
    app.run_worker(concurrency=int(concurrency), grace=5.0)
