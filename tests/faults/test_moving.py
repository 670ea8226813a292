"""A move that is killed at every stage, under a live worker and a client that goes on: it is called again and ends, or is
abandoned and the source works as before. Nothing that was accepted is lost.

A sample runs with `make sample`, every point with `make faults`.
"""

import os
import random
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from holdfast import App, Unavailable
from tests.faults.fleet import ROOT, make_app, until, worker
from tests.faults.mover import END, POINTS
from tests.faults.results import Fault
from tests.invariants import check_invariants
from tests.moving.conftest import Way, way
from tests.raw_sql import RawSql

__all__ = ["way"]
KILLED = -9
PATIENCE = 110  # seconds; under load everything is slow
# Each kill leaves the move further than the one before it.
ON_THE_WAY = (
    *("before begin", "after begin", "before arrive", "after arrive", "after make_queues", "write 1"),
    *(
        "after copy",
        "before drain",
        "before seal",
        "after seal",
        "before finish",
        "write 3",
        "before open",
        "after open",
    ),
    *("before close", "after close"),
)

SAMPLE = ("after arrive", "write 1", "after seal", "after open")


def move(way: Way, points: str, *more: str) -> list[int]:
    """Calls `holdfast move` for each point, one after the other; how each ended."""
    command = [sys.executable, "-m", "tests.faults.mover", points, "move", "--from", way.source, "--to", way.target]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    done = subprocess.run(
        [*command, "--instance", way.instance, "--grace", "2", "--json", *more],
        env=environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    told = [
        line.rpartition(": ")[2] for line in done.stdout.splitlines() if line.partition(": ")[0] in points.split(",")
    ]
    assert len(told) == len(points.split(",")), done
    codes = {int(code) for code in told}
    assert codes <= {KILLED, 0} or "There is nothing to abandon" in done.stderr, done
    return [int(code) for code in told]


@contextmanager
def client(app: App) -> Iterator[list[int]]:
    """Enqueues until it is told that the instance has left; the ids that were acknowledged."""
    accepted: list[int] = []
    stopping = threading.Event()

    def enqueue() -> None:
        while not stopping.wait(0.01):
            try:
                accepted.append(app.job_types["quick"].enqueue(i=len(accepted)).id)
            except Unavailable as error:
                if "was moved to" in str(error):
                    continue
                raise

    thread = threading.Thread(target=enqueue)
    thread.start()
    try:
        yield accepted
    finally:
        stopping.set()
        thread.join(30)


def ended(app: App, accepted: list[int]) -> bool:
    return not app.find(state="initial", limit=1) and not app.find(state="running", limit=1)


def survive(way: Way, tmp_path: Path, points: tuple[str, ...]) -> None:
    """Killed at these points, called again; everything is in the target and ends well there."""
    with make_app(way.source, way.instance) as app, client(app) as accepted:
        gate = app.job_types["gate"].enqueue(path=str(tmp_path / "gate"))
        with worker(way.source, tmp_path, name=way.instance) as first:
            until(lambda: gate.refresh().state == "running", what="it works")
            assert move(way, ",".join(points)) == [KILLED] * len(points)
            assert move(way, END) == [0]
            until(lambda: "was moved to" in first.log.read_text(), what="the worker says where the instance went")
        with pytest.raises(Unavailable, match="was moved to"):
            app.job_types["quick"].enqueue(i=0)
    check_invariants(way.target, way.instance, accepted=[*accepted, gate.id])
    (tmp_path / "gate").touch()
    with make_app(way.target, way.instance) as app, worker(way.target, tmp_path, name=way.instance):
        until(lambda: ended(app, accepted), what="all jobs are final in the target")
        assert app.get(gate.id).attempts()[0].outcome in ("lost", "handed_back")
    with_outcomes = RawSql(way.target, way.instance)
    assert with_outcomes("select distinct outcome from {job}") == [{"outcome": "success"}]
    with_outcomes.close()
    assert len(accepted) > 5
    check_invariants(way.target, way.instance, accepted=[*accepted, gate.id])


def give_up(way: Way, tmp_path: Path, points: tuple[str, ...]) -> None:
    """Killed at each point, then abandoned, also with a kill on the way: the source works, and all over again."""
    with make_app(way.source, way.instance) as app:
        accepted: list[int] = []
        with worker(way.source, tmp_path, name=way.instance):
            for point in points:
                accepted.append(app.job_types["quick"].enqueue(i=1).id)
                assert move(way, point) == [KILLED], point
                last = random.Random(point).choice(
                    ["before remove", "after remove", "before unseal", "after unseal", END]
                )
                reached = move(way, last, "--abandon")
                if reached == [KILLED] and last != "after unseal":
                    assert move(way, END, "--abandon") == [0], point
                accepted.append(app.job_types["quick"].enqueue(i=2).id)
                until(lambda: ended(app, accepted), what=f"the worker goes on after {point}")
                check_invariants(way.source, way.instance, accepted=accepted)
            assert move(way, END) == [0]
    check_invariants(way.target, way.instance, accepted=accepted)


@pytest.mark.claim("M1", "M2", "M4", "R1")
def test_a_move_that_is_killed_on_its_way_goes_on_where_it_was(way: Way, tmp_path: Path) -> None:
    survive(way, tmp_path, SAMPLE)


@pytest.mark.claim("M4")
def test_a_move_that_was_killed_is_abandoned(way: Way, tmp_path: Path) -> None:
    give_up(way, tmp_path, ("after seal",))


@pytest.mark.faults
@pytest.mark.timeout(1200)
def test_a_move_that_was_killed_anywhere_is_abandoned(way: Way, tmp_path: Path) -> None:
    give_up(
        way,
        tmp_path,
        tuple(
            point
            for point in POINTS
            if point not in ("after begin", "after open", "before close", "after close", "after finish")
        ),
    )


@pytest.mark.faults
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("seed", range(10))
def test_a_move_that_is_killed_again_and_again_ends(way: Way, tmp_path: Path, seed: int, fault: Fault) -> None:
    chosen = fault.luck(seed).sample(range(len(ON_THE_WAY)), 8) if seed else range(len(ON_THE_WAY))
    survive(way, tmp_path, tuple(ON_THE_WAY[index] for index in sorted(chosen)))
