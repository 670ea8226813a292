"""How long until the work goes on: after a worker was killed, and after the database server was restarted."""

import time
from collections.abc import Sequence

from bench.places import Place, Postgres, load
from bench.processes import Stalled, wait_for, workers

HELD = 10
WINDOW = 0.25  # seconds over which a rate is taken


def take_over(place: Place) -> float:
    """Seconds from kill -9 of the worker that holds jobs until another has begun them all."""
    url = place.fresh()
    settings = {"heartbeat": 0.5, "lost_after": 2.0}
    with workers(url, place.folder, HELD, app=settings) as holders:
        held = holders[0].marks
        assert held
        load(url, HELD, "sleeper", seconds=300)
        wait_for(lambda: held.begun() == HELD, 20, "the first worker holds the jobs", holders)
        with workers(url, place.folder, HELD, app=settings) as heirs:
            inherited = heirs[0].marks
            assert inherited
            time.sleep(2.5)
            killed = time.monotonic()
            holders[0].kill()
            wait_for(lambda: inherited.begun() == HELD, 30, "the second worker took the jobs over", heirs)
            taken = max(inherited.times[:HELD])
            heirs[0].kill()
            return taken - killed


def restart(place: Postgres, count: int) -> float:
    """Seconds from the server accepting connections again until the worker is back at four fifths of its rate,
    the lower of those before and long after."""
    url = place.fresh()
    load(url, count)
    place.settle()
    with workers(url, place.folder, count) as started:
        marks = started[0].marks
        assert marks
        wait_for(lambda: marks.begun() > count // 4, 60, "a quarter of the jobs begun", started)
        place.server.restart()
        back = time.monotonic()
        wait_for(lambda: marks.begun() == count, 60, "all jobs begun after the restart", started, every=0.05)
        times = sorted(marks.times[:count])
    after = [moment for moment in times if moment >= back]
    half, quarter = len(after) // 2, count // 4
    steady = min(rate_of(times[quarter // 4 : quarter]), rate_of(after[half:]))
    needed = max(1, int(steady * WINDOW * 0.8))
    for index in range(len(after) - needed):
        if after[index + needed] - after[index] <= WINDOW:
            return after[index] - back
    raise Stalled(f"after the restart the rate stayed below four fifths of {steady:.0f} jobs/s")


def rate_of(times: Sequence[float]) -> float:
    """Jobs per second over these moments."""
    if len(times) < 1000:
        raise Stalled("too few jobs are left after the restart to tell a rate; give more jobs")
    return len(times) / (times[-1] - times[0])
