"""What a limit costs: the same turns, and whole workers, on a queue with a limit of 500 and without."""

from collections.abc import Sequence
from typing import Any

from bench.execution import Run, check_marks, raw_turns, watch
from bench.places import UNFINISHED, Place, load
from bench.processes import Started, wait_for, workers
from bench.worker import QUEUE, bench_app

LIMIT = 500
CLOGGED = "clogged"


def limited_turns(place: Place, count: int, batch: int) -> Run:
    """Our statements without any worker; each turn ends and starts as many jobs as the limit has room for."""
    return raw_turns(place, count, batch, limit=batch)


def limited(place: Place, count: int, processes: int = 1, source: str = "", **settings: Any) -> Run:
    """Workers of which each could take the whole limit; all of them are there when the first job begins."""
    url = place.fresh(source)
    after = load(url, count)
    set_limit(url)
    place.settle()
    look = place.look()
    try:
        with workers(url, place.folder, count, processes, concurrency=LIMIT, **settings) as started:
            let_go(url, processes, started)
            run = watch(place, look, UNFINISHED.format(after=after), count, started)
            check_marks(started, count)
            return run
    finally:
        look.close()


def set_limit(url: str) -> None:
    """And no job begins yet."""
    with bench_app(url) as app:
        app.limit(QUEUE, LIMIT)
        app.pause(QUEUE)


def let_go(url: str, processes: int, started: Sequence[Started]) -> None:
    with bench_app(url) as app:
        wait_for(lambda: len(app.workers()) == processes, 30, "all workers are there", started)
        app.resume(QUEUE)


def load_clogged(place: Place, many: int) -> None:
    """Due jobs before all others that cannot start: the limit was lowered below their factor."""
    url = place.fresh()
    with bench_app(url) as app:
        heavy = app.job_types["noop"].using(throttle_factor=2 * LIMIT, priority=1)
        for start in range(0, many, 10_000):
            app.enqueue_many([heavy.new(i=0) for _ in range(start, min(start + 10_000, many))])
    set_limit(url)
    place.settle()
    place.keep(CLOGGED)
