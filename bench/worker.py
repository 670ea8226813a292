"""The worker that is measured: `python -m bench.worker URL --marks FILE --size N`. Also the app that its driver enqueues with.

It stops on SIGTERM, and dies when its driver does: its standard input is a pipe from there.
"""

import argparse
import asyncio
import json
import os
import signal
import threading
import time
from pathlib import Path
from string import ascii_lowercase
from typing import Any

from bench import flows
from bench.marks import Marks
from holdfast import App, Failed

QUEUE = "work"


def bench_app(url: str, marks: Marks | None = None, idle_queues: int = 0, **settings: Any) -> App:
    """An app with a queue `work` whose handlers leave marks, and others in which nothing is done."""
    app = App(url, **settings)
    queue = app.queue(QUEUE)
    hit = marks.hit if marks else print

    @queue.job
    async def noop(i: int) -> None:
        hit(i)

    @queue.job
    async def failing(i: int, every: int) -> None:
        hit(i)
        if i % every == 0:
            raise Failed("as expected")

    @queue.job
    def thread_noop(i: int) -> None:
        hit(i)

    @queue.job(isolation="process")
    def process_noop(i: int) -> None:
        hit(i)

    @queue.job(timeout=600)
    async def sleeper(i: int, seconds: float) -> None:
        hit(i)
        await asyncio.sleep(seconds)

    for number in range(idle_queues):
        name = f"idle_{ascii_lowercase[number // 26]}{ascii_lowercase[number % 26]}"
        app.queue(name).job(name=name)(noop.handler.function)

    return app


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("--marks", type=Path, required=True)
    parser.add_argument("--size", type=int, required=True)
    parser.add_argument("--settings", type=json.loads, default={}, help="of the worker")
    parser.add_argument("--app", type=json.loads, default={}, help="settings of the app")
    parser.add_argument("--enqueue", type=int, default=0, help="enqueue so many jobs itself, one each --gap seconds")
    parser.add_argument("--gap", type=float, default=0.02)
    parser.add_argument("--idle-queues", type=int, default=0, help="beside the one that is used")
    parser.add_argument("--flows", type=int, nargs=3, metavar=("WIDTH", "LENGTH", "ITEMS"), help="workflows as well")
    arguments = parser.parse_args()
    threading.Thread(target=_die_with_driver, daemon=True).start()
    marks = Marks(arguments.marks, arguments.size)
    app = bench_app(arguments.url, marks, arguments.idle_queues, **arguments.app)
    if arguments.flows:
        flows.declare(app, marks.hit, *arguments.flows)
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    worker = app.worker_for_ever(**arguments.settings)
    worker.start()
    if arguments.enqueue:
        time.sleep(1)
        print(json.dumps(enqueue_steadily(app, arguments.enqueue, arguments.gap)), flush=True)
    stop.wait()
    worker.stop()
    app.close()


def _die_with_driver() -> None:
    os.read(0, 1)
    os._exit(1)


def enqueue_steadily(app: App, count: int, gap: float, first: int = 0) -> list[float]:
    """One job each `gap` seconds, numbered from `first`; the moments before each was enqueued."""
    noop = app.job_types["noop"]
    began, next_time = [], time.monotonic()
    for number in range(first, first + count):
        time.sleep(max(0.0, next_time - time.monotonic()))
        next_time += gap
        began.append(time.monotonic())
        noop.enqueue(i=number)
    return began


if __name__ == "__main__":
    main()
