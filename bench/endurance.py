"""What lasts: very many claims in a row and the latency right after them; and handlers that take their time."""

import time

from msgspec import Struct

from bench.execution import Run, check_marks, execution
from bench.latency import GAP, Latency, measured
from bench.places import UNFINISHED, Place, load
from bench.processes import wait_for, workers
from bench.worker import QUEUE, bench_app, enqueue_steadily

SLEEP = 0.010  # seconds


class Steady(Struct, frozen=True):
    """Jobs a second in the first and the last fifth of a long run, and the latency before and right after it."""

    first: float
    last: float
    before: Latency
    after: Latency


def steady(place: Place, count: int, latencies: int) -> Steady:
    """One worker that lives through all of it."""
    url, size = place.fresh(), 2 * latencies + count
    look = place.look()
    try:
        with bench_app(url) as app, workers(url, place.folder, size) as started:
            marks = started[0].marks
            assert marks
            app.job_types["noop"].enqueue(i=size)
            wait_for(lambda: marks.counts[size] > 0, 20, "the worker runs a first job", started)
            time.sleep(1)
            before = measured(enqueue_steadily(app, latencies, GAP), started)
            app.pause(QUEUE)
            unfinished = UNFINISHED.format(after=load(url, count, first=latencies))
            place.settle()
            app.resume(QUEUE)
            wait_for(lambda: look.one(unfinished) is None, 180, "every job final in the store", started)
            after = measured(enqueue_steadily(app, latencies, GAP, latencies + count), started, latencies + count)
            check_marks(started, size)
            begun = sorted(marks.times[latencies : latencies + count])
            return Steady(_rate(begun[: count // 5]), _rate(begun[-(count // 5) :]), before, after)
    finally:
        look.close()


def _rate(moments: list[float]) -> float:
    return len(moments) / (moments[-1] - moments[0])


def sleepers(place: Place, count: int, concurrency: int) -> Run:
    """Each handler sleeps ten milliseconds on the event loop; so many may at once."""
    return execution(place, count, job_type="sleeper", fixed={"seconds": SLEEP}, concurrency=concurrency)


def isolated(place: Place, count: int) -> Run:
    """Each handler runs in a child process that is used again."""
    return execution(place, count, job_type="process_noop", concurrency=4)
